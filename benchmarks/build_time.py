"""`tilewright build` beside onnxruntime's `quantize_static`: wall time and peak memory.

    python benchmarks/build_time.py
    python benchmarks/build_time.py --rounds 7

EfficientNet-Lite0 and 32 pictures in a folder. Tilewright calibrates, quantizes, compiles for both
modes of ax650n, simulates, compares and writes its report, once with its defaults (percentile
ranges and bias correction) and once with plain min-max; onnxruntime prepares the model and
quantizes it (MinMax, per channel). Whole processes that take turns; medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import processes
import results
from PIL import Image

from tilewright.assets.cache import asset_path
from tilewright.assets.pictures import calibration_views

MODEL = "efficientnet-lite0"
SIZE = 224
PEER = "onnxruntime quantize_static"
PLAIN, DEFAULT = "tilewright build, plain min-max", "tilewright build, defaults"


@dataclass(frozen=True)
class Row:
    """Medians of one command.

    Args:
        ratio: of its time to that of onnxruntime's quantization.
    """

    command: str
    seconds: float
    ratio: float
    peak_mib: float
    all_seconds: tuple[float, ...]


def write_pictures(folder: Path) -> None:
    """The 32 calibration views as files."""
    folder.mkdir()
    for index, view in enumerate(calibration_views(SIZE).pixels):
        Image.fromarray(view).save(folder / f"view{index:02}.png")


def commands(pictures: Path, work: Path) -> dict[str, list[str]]:
    """What takes turns; every one writes to a place of its own."""
    model = str(asset_path(MODEL))
    build = processes.tilewright(
        "build",
        model,
        *("--target", "ax650n", "--npu-mode", "NPU1,NPU3"),
        *("--calib", str(pictures), "--mean", "127", "--std", "128"),
    )
    peers = str(Path(__file__).with_name("peers.py"))
    quantize = [sys.executable, peers, "ort-u8", model, str(pictures), str(work / "peer.onnx")]
    return {
        PEER: quantize,
        PLAIN: [*build, "--observer", "minmax", "--no-bias-correction", "-o"],
        DEFAULT: [*build, "-o"],
    }


def measure(rounds: int, work: Path) -> list[Row]:
    pictures = work / "pictures"
    write_pictures(pictures)
    spent: dict[str, list[processes.Spent]] = {}
    for turn in range(rounds):
        for index, (name, command) in enumerate(commands(pictures, work).items()):
            fresh = [str(work / f"out{turn}.{index}")] if command[-1] == "-o" else []
            spent.setdefault(name, []).append(processes.run([*command, *fresh]))
            last = spent[name][-1]
            print(f"{name}: {last.seconds:.2f} s, {last.peak_mib:.0f} MiB", flush=True)
    base = _median([s.seconds for s in spent[PEER]])
    return [
        Row(
            name,
            _median([s.seconds for s in runs]),
            _median([s.seconds for s in runs]) / base,
            max(s.peak_mib for s in runs),
            tuple(s.seconds for s in runs),
        )
        for name, runs in spent.items()
    ]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each command")
    parser.add_argument("--provisional", action="store_true", help="the machine is not idle")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(args.rounds, Path(scratch))
    for row in rows:
        print(f"{row.command:34} {row.seconds:6.2f} s {row.ratio:5.2f} x {row.peak_mib:6.0f} MiB")
    if not args.no_write:
        settings = {"rounds": args.rounds, "pictures": 32, "target": "ax650n"}
        results.write("build_time", rows, settings=settings, provisional=args.provisional)
    return 0


if __name__ == "__main__":
    sys.exit(main())
