"""EfficientNet-Lite quantized for ax650n, beside float and other tools on the same pictures.

    python benchmarks/accuracy.py                        sets that anyone can fetch
    python benchmarks/accuracy.py --data DIR             the labelled sample in DIR besides
    python benchmarks/accuracy.py --peers ort-s8 ort-u8 nncf nncf-minmax

All tools calibrate on the same 32 views, none of which is scored. Top-1 counts labelled central
views: `pictures` has one for each of 70 pictures, and 630 crops of them that count for agreement
and signal-to-noise only. A flip is a view whose best class is not float's. p is that of McNemar's
exact test on the labelled views, against float and against the peer with the fewest flips.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import building
import numpy as np
import numpy.typing as npt
import onnx
import peers
import pictures
import results
import sessions
from models import REAL

from tilewright.assets.pictures import Views
from tilewright.evaluation.statistics import NoiseRatio, mcnemar

Array = npt.NDArray[Any]

TARGET = "ax650n"
MODELS = ("efficientnet-lite0", "efficientnet-lite1")
SETTINGS: dict[str, dict[str, Any]] = {
    "tilewright": {},
    "tilewright min-max": {"observer": "minmax", "bias_correction": False},
}
FLIP_SETS = ("sample", "pictures")


@dataclass(frozen=True)
class Row:
    """One setting, run in one way, on one set.

    Args:
        execution: onnxruntime fused or unfused, or the C runtime.
        top1: percent of the labelled central views.
        agreement: percent of all views on which the best class is float's.
        sqnr_db: of the logits, over the whole set.
        p_float, p_peer: McNemar's.
    """

    network: str
    setting: str
    execution: str
    set: str
    views: int
    labelled: int
    top1: float
    agreement: float
    flips: int
    sqnr_db: float | None
    p_float: float
    p_peer: float | None = None


@dataclass(frozen=True)
class Contestant:
    """Something that turns a picture into logits."""

    setting: str
    execution: str
    run: sessions.Infer

    @property
    def is_peer(self) -> bool:
        return self.setting in peers.PEERS


def contestants(
    source: building.Source, wanted: list[str], work: Path, threads: int
) -> Iterator[Contestant]:
    """Float, Tilewright's settings and the peers, quantized now."""
    float_model = onnx.load(source.model)
    yield Contestant("float", "onnxruntime", sessions.infer(float_model, threads=threads))
    for setting, choices in SETTINGS.items():
        folder = source.model.parent / setting.replace(" ", "-")
        built = building.build(source, TARGET, folder, modes=["NPU1"], choices=choices)
        yield from _both(setting, built.quantized, threads)
        yield Contestant(setting, "C runtime", _runtime(built, source.input, threads))
    static = work / f"{source.network.name}.static.onnx"
    onnx.save(peers.static(float_model, source.network.shapes), static)
    samples = building.read_samples(source)
    for peer in wanted:
        target = work / f"{source.network.name}.{peer}.onnx"
        peers.quantize(peer, static, samples, target)
        yield from _both(peer, target, threads)


def _both(setting: str, model: Path, threads: int) -> Iterator[Contestant]:
    yield Contestant(setting, "fused", sessions.infer(model, threads=threads))
    plain = sessions.infer(model, threads=threads, optimised=False)
    yield Contestant(setting, "unfused", plain)


def _runtime(built: building.Built, name: str, threads: int) -> sessions.Infer:
    execution = built.model.execution("runtime", threads=threads)
    outputs = [port.name for port in built.model.plan.outputs]

    def run(value: Array) -> list[Array]:
        values = execution.run({name: value})
        return [values[output] for output in outputs]

    return run


def score(network: str, name: str, views: Views, found: dict[Contestant, Array]) -> Iterator[Row]:
    """A row for each contestant on one set; the first of them is float."""
    central = slice(None, None, 10) if name == "pictures" else slice(None)
    labels = views.labels[central]
    exact = next(iter(found.values()))
    best = {c: logits.argmax(1) for c, logits in found.items()}
    right = {c: classes[central] == labels for c, classes in best.items()}
    reference = best[next(iter(found))]
    flips = {c: int((classes != reference).sum()) for c, classes in best.items()}
    rivals = [c for c in found if c.is_peer]
    rival = min(rivals, key=lambda c: flips[c]) if rivals else None
    for contestant, logits in found.items():
        ratio = NoiseRatio()
        ratio.add(exact, logits)
        yield Row(
            network,
            contestant.setting,
            contestant.execution,
            name,
            len(logits),
            len(labels),
            100 * float(right[contestant].mean()),
            100 * (1 - flips[contestant] / len(logits)),
            flips[contestant],
            _finite(ratio.decibels),
            _p(right[contestant], next(iter(right.values()))),
            None if rival is None else _p(right[contestant], right[rival]),
        )


def _p(ours: Array, theirs: Array) -> float:
    return mcnemar(int((ours & ~theirs).sum()), int((~ours & theirs).sum()))


def _finite(decibels: float | None) -> float | None:
    return decibels if decibels is not None and np.isfinite(decibels) else None


def measure(args: argparse.Namespace, work: Path, show: Callable[[Row], None]) -> list[Row]:
    rows = []
    sets = ["pictures", "tiny"] + (["sample"] if args.data else [])
    for name in args.models:
        source = building.prepare(REAL[name], work)
        size = source.network.shapes[0][2]
        field = list(contestants(source, args.peers, work, args.threads))
        for chosen in args.sets or sets:
            views = _limited(pictures.views_of(chosen, size, args.data), args.limit)
            inputs = [pictures.planes(view, 127, 128) for view in views.pixels]
            found = {c: sessions.first_outputs(c.run, inputs) for c in field}
            for row in score(name, chosen, views, found):
                rows.append(row)
                show(row)
    return rows


def _limited(views: Views, limit: int | None) -> Views:
    part = slice(limit)
    return Views(views.pixels[part], views.labels[part], views.names[part])


def print_row(row: Row) -> None:
    ratio = "inf" if row.sqnr_db is None else f"{row.sqnr_db:.2f}"
    peer = "" if row.p_peer is None else f", peer {row.p_peer:.3f}"
    print(
        f"{row.network} {row.set:8} {row.setting:18} {row.execution:11} top-1 {row.top1:6.2f} %"
        f" | agreement {row.agreement:6.2f} % ({row.flips} flips) | {ratio} dB"
        f" | p float {row.p_float:.3f}{peer}",
        flush=True,
    )


def flips_together(rows: list[Row], sets: tuple[str, ...] = FLIP_SETS) -> dict[str, int]:
    """Flips over several sets, by network, setting and execution."""
    total: dict[str, int] = {}
    for row in rows:
        if row.set in sets and row.setting != "float":
            key = f"{row.network}, {row.setting}, {row.execution}"
            total[key] = total.get(key, 0) + row.flips
    return total


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--data", type=Path, help="folder of the labelled sample (tar and csv)")
    parser.add_argument("--sets", nargs="+", choices=("pictures", "tiny", "sample"))
    parser.add_argument("--peers", nargs="*", choices=peers.PEERS, default=list(peers.ORT_PEERS))
    parser.add_argument("--limit", type=int, help="views of each set, for a quick look")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="keep artifacts here")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    args = parser.parse_args()
    if "sample" in (args.sets or ()) and args.data is None:
        parser.error("the set `sample` needs --data")
    return args


def main() -> int:
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        rows = measure(args, work, print_row)
    together = flips_together(rows)
    if args.data:
        for key, count in together.items():
            print(f"flips on {' and '.join(FLIP_SETS)}: {key}: {count}")
    if not args.no_write:
        settings = {"calibration": building.CALIBRATION, "limit": args.limit, "target": TARGET}
        results.write("accuracy", rows, settings=settings | {"flips": together})
    return 0


if __name__ == "__main__":
    sys.exit(main())
