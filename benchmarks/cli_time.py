"""Waiting for the command line: help, a build with nothing changed, one for another chip.

    python benchmarks/cli_time.py

Fresh processes, medians. The builds are of EfficientNet-Lite0 with 32 pictures into one folder:
first for ax650n, then again, then for each other chip in turn; the table says which stages ran.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import processes
import results
from build_time import write_pictures

from tilewright.assets.cache import asset_path

MODEL = "efficientnet-lite0"
FIRST = "ax650n"
OTHERS = ("cpu", "tda4vm", "a311d")
"""cpu quantizes as ax650n does; the others have numeric rules of their own."""


@dataclass(frozen=True)
class Row:
    """One command.

    Args:
        ran: stages of the build that were run; the others' results were reused.
    """

    what: str
    seconds: float
    rounds: int
    ran: tuple[str, ...] = ()


def _help(rounds: int) -> Row:
    times = [processes.run(processes.tilewright("--help")).seconds for _ in range(rounds)]
    return Row("tilewright --help", statistics.median(times), rounds)


def _build(pictures: Path, output: Path, target: str, what: str, rounds: int = 1) -> Row:
    command = processes.tilewright(
        "build",
        str(asset_path(MODEL)),
        *("--target", target, "--calib", str(pictures)),
        *("--mean", "127", "--std", "128", "-o", str(output)),
    )
    before = _keys(output)
    times = [processes.run(command).seconds for _ in range(rounds)]
    ran = tuple(stage for stage, key in _keys(output).items() if before.get(stage) != key)
    return Row(what, statistics.median(times), rounds, ran)


def _keys(output: Path) -> dict[str, str]:
    """Stage -> what it was made from, as report.json tells."""
    report = output / "report.json"
    if not report.exists():
        return {}
    stages = json.loads(report.read_text(encoding="utf-8"))["stages"]
    return {stage["name"]: stage["key"] for stage in stages}


def measure(rounds: int, work: Path) -> list[Row]:
    pictures, output = work / "pictures", work / "out"
    write_pictures(pictures)
    rows = [_help(rounds), _build(pictures, output, FIRST, f"build for {FIRST}")]
    rows.append(_build(pictures, output, FIRST, "the same build again", rounds))
    rows += [_build(pictures, output, t, f"the same for {t}") for t in OTHERS]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of the short commands")
    parser.add_argument("--provisional", action="store_true", help="the machine is not idle")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(args.rounds, Path(scratch))
    for row in rows:
        print(f"{row.what:24} {row.seconds:6.2f} s  ran: {', '.join(row.ran) or '-'}")
    if not args.no_write:
        settings = {"rounds": args.rounds}
        results.write("cli_time", rows, settings=settings, provisional=args.provisional)
    return 0


if __name__ == "__main__":
    sys.exit(main())
