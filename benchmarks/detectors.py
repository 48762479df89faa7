"""Detectors through the defaults: what is found again, and what joining mixed outputs costs.

    python benchmarks/detectors.py                      pictures that anyone can fetch
    python benchmarks/detectors.py --faces DIR          a folder of portraits besides
    python benchmarks/detectors.py --structures DIR     yolov5s and yolox_s besides

`ddddocr-det` (YOLOX) reads letters drawn on the photograph of a cat that no calibration view shows;
`ultraface-rfb-320` looks at crops of a portrait, and at the pictures of --faces. A float detection
counts as kept if one of the quantized model's overlaps it by IoU 0.5.

The structures end in a Concat of boxes and scores. Each branch's signal-to-noise ratio is set
beside that of the same branch in a model that was cut before the join, so that nothing was shared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import architectures
import building
import faces
import models
import numpy as np
import numpy.typing as npt
import onnx
import peers
import results
import sessions
from drawings import letters
from joins import Join
from pictures import bgr, planes
from PIL import Image

from tilewright.assets.cache import asset_path
from tilewright.assets.pictures import central_view
from tilewright.evaluation.detection import Detection, decode, match, select
from tilewright.evaluation.statistics import NoiseRatio

Array = npt.NDArray[Any]

TARGET = "ax650n"
SEED = 19
SCENES = 20
CROPS = 64
FACE_VIEWS = 8
JOINED = ("yolov5s", "yolox_s")
BRANCH_SAMPLES = 2


@dataclass(frozen=True)
class Detector:
    """How one detector is fed and read."""

    network: str
    threshold: float
    overlap: float


LETTERS = Detector("ddddocr-det", 0.3, 0.45)
FACES = Detector("ultraface-rfb-320", 0.65, 0.4)


@dataclass(frozen=True)
class Row:
    """One quantized detector against float.

    Args:
        kept: percent of float's detections.
        mean_difference, largest_difference: of the scores of detections that were kept.
        sqnr_db: output -> decibels.
    """

    network: str
    pictures: str
    setting: str
    execution: str
    detections: int
    kept: float
    extra: int
    mean_difference: float
    largest_difference: float
    sqnr_db: dict[str, float]


@dataclass(frozen=True)
class BranchRow:
    """One branch of a joined output: its ratio there, and in the model without the join."""

    network: str
    branch: str
    joined_db: float
    alone_db: float

    @property
    def loss_db(self) -> float:
        return self.alone_db - self.joined_db


Outputs = dict[str, Array]
Run = Callable[[Array], Outputs]


def letter_scenes() -> Iterator[Array]:
    """Inputs of `ddddocr-det`."""
    rng = np.random.default_rng(SEED)
    with Image.open(asset_path("photo-chelsea")) as picture:
        scene = Image.fromarray(central_view(picture.convert("RGB"), 416))
    for _ in range(SCENES):
        yield planes(bgr(letters(scene, rng)[0]), 0, 1)


def face_scenes(portraits: list[Image.Image], each: int) -> Iterator[Array]:
    """Inputs of `ultraface-rfb-320`."""
    for view in faces.scenes(portraits, each):
        small = view.resize((320, 240), Image.Resampling.BILINEAR)
        yield planes(small, 127, 128)


def runners(source: building.Source, work: Path) -> Iterator[tuple[str, str, Run]]:
    """Float first, then Tilewright, then the peers: setting, execution and function."""
    model = onnx.load(source.model)
    yield "float", "onnxruntime", _session(model)
    built = building.build(source, TARGET, work / "ours", modes=["NPU1"])
    yield "tilewright", "fused", _session(built.quantized)
    execution = built.model.execution("runtime", threads=2)
    yield (
        "tilewright",
        "C runtime",
        lambda value: built.model.outputs_of(execution.run({source.input: value})),
    )
    static = work / "static.onnx"
    onnx.save(peers.static(model, source.network.shapes), static)
    samples = building.read_samples(source)
    for peer in peers.ORT_PEERS:
        target = work / f"{peer}.onnx"
        peers.quantize(peer, static, samples, target)
        yield peer, "fused", _session(target)


def _session(model: Path | onnx.ModelProto) -> Run:
    loaded = sessions.session(model)
    name = loaded.get_inputs()[0].name
    names = [output.name for output in loaded.get_outputs()]
    return lambda value: dict(zip(names, loaded.run(names, {name: value}), strict=True))


def detect(detector: Detector, outputs: Outputs, value: Array) -> list[Detection]:
    size = (value.shape[2], value.shape[3])
    found = decode(outputs, size)
    return select(found, threshold=detector.threshold, overlap=detector.overlap)


def compare(detector: Detector, pictures: str, inputs: list[Array], work: Path) -> Iterator[Row]:
    """A row for each quantized version."""
    source = building.prepare(models.REAL[detector.network], work)
    folder = work / detector.network
    folder.mkdir(exist_ok=True)
    versions = runners(source, folder)
    _, _, run_float = next(versions)
    exact = [run_float(value) for value in inputs]
    wanted = [detect(detector, o, v) for o, v in zip(exact, inputs, strict=True)]
    for setting, execution, run in versions:
        found = [run(value) for value in inputs]
        boxes = [detect(detector, o, v) for o, v in zip(found, inputs, strict=True)]
        yield summary(detector, pictures, (setting, execution), wanted, boxes, exact, found)


def summary(
    detector: Detector,
    pictures: str,
    how: tuple[str, str],
    wanted: list[list[Detection]],
    boxes: list[list[Detection]],
    exact: list[Outputs],
    found: list[Outputs],
) -> Row:
    agreements = [match(a, b) for a, b in zip(wanted, boxes, strict=True)]
    kept = sum(a.kept for a in agreements)
    total = sum(a.total for a in agreements)
    differences = [d for a, b in zip(wanted, boxes, strict=True) for d in score_differences(a, b)]
    ratios = {name: NoiseRatio() for name in exact[0]}
    for a, b in zip(exact, found, strict=True):
        for name, ratio in ratios.items():
            ratio.add(a[name], b[name])
    return Row(
        detector.network,
        pictures,
        *how,
        total,
        100 * kept / max(total, 1),
        sum(a.extra for a in agreements),
        float(np.mean(differences or [0.0])),
        max(differences, default=0.0),
        {name: ratio.decibels or 0.0 for name, ratio in ratios.items()},
    )


def score_differences(wanted: Iterable[Detection], found: list[Detection]) -> Iterator[float]:
    """|difference| for each detection that is found again, matched as `match` does."""
    for detection in wanted:
        agreement = match([detection], found)
        if agreement.kept:
            yield agreement.score_difference


def branches(name: str, folder: Path, work: Path) -> Iterator[BranchRow]:
    """Each branch of a structure's joined output, with and without the join."""
    given = architectures.architecture(folder, name)
    join = Join.of(given.load())
    joined = replace(given, load=lambda: join.model)
    alone = replace(given, name=f"{name}-cut", load=lambda: join.head)
    inputs = [value for (value,) in given.samples(BRANCH_SAMPLES)]
    exact = [_session(join.model)(value)[join.output] for value in inputs]
    tail = sessions.session(join.tail)
    quantized = []
    for network in (joined, alone):
        source = building.prepare(network, work)
        built = building.build(source, TARGET, source.model.parent / TARGET, modes=["NPU1"])
        execution = built.model.execution("runtime", threads=2)
        quantized.append([execution.run({source.input: value}) for value in inputs])
    with_join = [values[join.output] for values in quantized[0]]
    without = [
        tail.run([join.output], {b: values[b] for b in join.branches})[0] for values in quantized[1]
    ]
    for branch, mask in join.masks().items():
        pair = [NoiseRatio(), NoiseRatio()]
        for ratio, outputs in zip(pair, (with_join, without), strict=True):
            for a, b in zip(exact, outputs, strict=True):
                ratio.add(a[mask], b[mask])
        yield BranchRow(name, branch, pair[0].decibels or 0.0, pair[1].decibels or 0.0)


def print_row(row: Row | BranchRow) -> None:
    if isinstance(row, BranchRow):
        print(
            f"{row.network:18} {row.branch:28} joined {row.joined_db:6.2f} dB,"
            f" alone {row.alone_db:6.2f} dB, loss {row.loss_db:5.2f} dB",
            flush=True,
        )
        return
    ratios = ", ".join(f"{name} {value:.2f} dB" for name, value in row.sqnr_db.items())
    print(
        f"{row.network:18} {row.pictures:10} {row.setting:10} {row.execution:10}"
        f" kept {row.kept:6.2f} % of {row.detections}, {row.extra} extra, score difference mean"
        f" {row.mean_difference:.4f} largest {row.largest_difference:.3f}, {ratios}",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faces", type=Path, metavar="DIR", help="folder of portraits")
    parser.add_argument("--structures", type=Path, metavar="DIR", help="folder of structures.py")
    parser.add_argument("--work", type=Path, help="keep artifacts here")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    return parser.parse_args()


def measure(args: argparse.Namespace, work: Path) -> Iterator[Row | BranchRow]:
    yield from compare(LETTERS, "letters", list(letter_scenes()), work)
    yield from compare(FACES, "portrait", list(face_scenes([faces.portrait()], CROPS)), work)
    if args.faces:
        portraits = faces.portraits_in(args.faces)
        yield from compare(FACES, "given", list(face_scenes(portraits, FACE_VIEWS)), work)
    for name in JOINED if args.structures else ():
        yield from branches(name, args.structures, work)


def main() -> int:
    args = arguments()
    rows: list[Row | BranchRow] = []
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        for row in measure(args, work):
            rows.append(row)
            print_row(row)
    if not args.no_write:
        settings = {"calibration": building.CALIBRATION, "target": TARGET}
        results.write("detectors", rows, settings=settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
