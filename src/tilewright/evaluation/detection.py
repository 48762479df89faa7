"""From a detector's raw outputs to boxes: decoding by output format, suppression, matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.errors import DataError, nearest

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]

STRIDES = (8, 16, 32)
FORMATS = ("auto", "yolox", "yolov5", "yolov8", "boxes")


class Detection(NamedTuple):
    """A box in pixels of the model's input: left, top, right, bottom."""

    box: tuple[float, float, float, float]
    score: float
    label: int


@dataclass(frozen=True)
class Candidates:
    """Every box that the model proposes, before any threshold.

    Attributes:
        boxes: float64 [n, 4] as left, top, right, bottom in input pixels.
        scores: float64 [n, classes].
    """

    boxes: F64
    scores: F64


def decode(outputs: Mapping[str, Array], size: tuple[int, int], form: str = "auto") -> Candidates:
    """Read candidates from raw outputs.

    Args:
        outputs: model outputs by name.
        size: height and width of the model's input.
        form: yolox (one [1, n, 5+c], offsets on strides 8, 16, 32), yolov5 ([1, n, 5+c], decoded
            centre boxes in pixels), yolov8 ([1, 4+c, n], the same without objectness), boxes (two
            outputs: corners on 0..1 and scores with the background in front), or auto.

    Raises:
        DataError: the outputs do not have that format.
    """
    if form not in FORMATS:
        fix = nearest(form, FORMATS)
        raise DataError(f"unknown detector format {form!r}", fix=fix, code="TW-1245")
    arrays = [np.asarray(a, dtype=np.float64) for a in outputs.values()]
    found = _recognise(arrays, size) if form == "auto" else form
    try:
        candidates = _candidates(arrays, size, found)
    except (ValueError, IndexError, StopIteration) as error:
        raise _unreadable(arrays, found) from error
    boxes, scores = candidates.boxes, candidates.scores
    if boxes.shape != (len(scores), 4) or scores.shape[1] == 0:
        raise _unreadable(arrays, found)
    return candidates


def _candidates(arrays: Sequence[F64], size: tuple[int, int], form: str) -> Candidates:
    if form == "boxes":
        return _corner_boxes(arrays, size)
    rows = arrays[0].reshape(arrays[0].shape[-2:])
    if form == "yolov8":
        return _centre_boxes(rows.T[:, :4], rows.T[:, 4:])
    if form == "yolox":
        return _grid_boxes(rows, size)
    return _centre_boxes(rows[:, :4], rows[:, 4:5] * rows[:, 5:])


def _recognise(arrays: Sequence[F64], size: tuple[int, int]) -> str:
    if len(arrays) == 2 and any(a.shape[-1] == 4 for a in arrays):
        return "boxes"
    if len(arrays) == 1 and arrays[0].ndim == 3:
        _, rows, columns = arrays[0].shape
        if rows < columns and rows > 4:
            return "yolov8"
        cells = sum((size[0] // s) * (size[1] // s) for s in STRIDES)
        if rows == cells:
            # Decoded boxes are in pixels, offsets are a few cells at most.
            largest = float(np.abs(arrays[0][..., :4]).max())
            return "yolov5" if largest > max(size) / 2 else "yolox"
        if columns > 5:
            return "yolov5"
    raise _unreadable(arrays, "auto")


def _unreadable(arrays: Sequence[F64], form: str) -> DataError:
    shapes = ", ".join(str(list(a.shape)) for a in arrays)
    return DataError(
        f"outputs of shape {shapes} are not boxes in a format that is known ({form})",
        fix=f"give --format, one of {', '.join(FORMATS)}",
        code="TW-1246",
    )


def _centre_boxes(boxes: F64, scores: F64) -> Candidates:
    centre, extent = boxes[:, :2], boxes[:, 2:4]
    return Candidates(np.hstack([centre - extent / 2, centre + extent / 2]), scores)


def _grid_boxes(rows: F64, size: tuple[int, int]) -> Candidates:
    """Undecoded: centre = (offset + cell) * stride, extent = exp(.) * stride."""
    cells, strides = [], []
    for stride in STRIDES:
        y, x = np.mgrid[: size[0] // stride, : size[1] // stride]
        cells.append(np.stack([x.ravel(), y.ravel()], axis=1))
        strides.append(np.full((x.size, 1), float(stride)))
    grid, step = np.vstack(cells), np.vstack(strides)
    centre = (rows[:, :2] + grid) * step
    extent = np.exp(np.clip(rows[:, 2:4], -20, 20)) * step
    return _centre_boxes(np.hstack([centre, extent]), rows[:, 4:5] * rows[:, 5:])


def _corner_boxes(arrays: Sequence[F64], size: tuple[int, int]) -> Candidates:
    boxes = next(a for a in arrays if a.shape[-1] == 4)
    scores = next(a for a in arrays if a is not boxes)
    height, width = size
    pixels = boxes.reshape(-1, 4) * np.array([width, height, width, height])
    return Candidates(pixels, scores.reshape(len(pixels), -1)[:, 1:])


def select(
    candidates: Candidates, *, threshold: float = 0.5, overlap: float = 0.45
) -> list[Detection]:
    """Boxes above the threshold after non-maximum suppression per class, best first.

    Args:
        overlap: IoU above which the weaker box of the same class is dropped.
    """
    labels = candidates.scores.argmax(axis=1)
    scores = candidates.scores.max(axis=1)
    order = np.argsort(-scores, kind="stable")
    kept: list[Detection] = []
    for index in order[scores[order] >= threshold]:
        x0, y0, x1, y1 = map(float, candidates.boxes[index])
        new = Detection((x0, y0, x1, y1), float(scores[index]), int(labels[index]))
        if all(k.label != new.label or iou(k, new) <= overlap for k in kept):
            kept.append(new)
    return kept


def iou(a: Detection, b: Detection) -> float:
    """Intersection over union of two boxes."""
    width = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
    height = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / (_area(a) + _area(b) - shared)


def _area(d: Detection) -> float:
    return max(0.0, d.box[2] - d.box[0]) * max(0.0, d.box[3] - d.box[1])


class Agreement(NamedTuple):
    """How many of a reference's detections another model finds again.

    Attributes:
        kept: reference detections matched at the IoU asked for, same class.
        total: detections of the reference.
        extra: detections of the other model without a partner.
        score_difference: mean absolute difference of the matched scores; 0 without matches.
    """

    kept: int
    total: int
    extra: int
    score_difference: float


def match(
    reference: Sequence[Detection], other: Sequence[Detection], *, overlap: float = 0.5
) -> Agreement:
    """Match greedily, best reference first, each box once."""
    free = list(other)
    differences = []
    for wanted in sorted(reference, key=lambda d: -d.score):
        partners = [d for d in free if d.label == wanted.label and iou(d, wanted) >= overlap]
        if partners:
            best = max(partners, key=lambda d: iou(d, wanted))
            free.remove(best)
            differences.append(abs(best.score - wanted.score))
    mean = float(np.mean(differences)) if differences else 0.0
    return Agreement(len(differences), len(reference), len(free), mean)
