from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import DataError
from tilewright.evaluation.detection import (
    Candidates,
    Detection,
    decode,
    iou,
    match,
    select,
)

SIZE = (64, 96)
CELLS = 8 * 12 + 4 * 6 + 2 * 3


def test_yolox_offsets_become_pixels() -> None:
    rows = np.zeros((1, CELLS, 7))
    row = 8 * 12 + 6 + 2  # stride 16, cell x 2, y 1
    rows[0, row] = [0.5, 0.25, np.log(2), np.log(3), 0.9, 0.2, 0.8]
    found = select(decode({"out": rows}, SIZE), threshold=0.5)
    assert len(found) == 1
    assert found[0].box == pytest.approx((40 - 16, 20 - 24, 40 + 16, 20 + 24))
    assert found[0].score == pytest.approx(0.72)
    assert found[0].label == 1


def test_yolov5_and_yolov8_rows_are_centre_boxes() -> None:
    rows = np.zeros((1, CELLS, 7))
    rows[0, 0] = [60, 40, 20, 10, 0.5, 1, 0]
    five = decode({"out": rows}, SIZE)
    assert five.boxes[0].tolist() == [50, 35, 70, 45]
    assert five.scores[0].tolist() == [0.5, 0]
    eight = decode({"out": np.delete(rows, 4, axis=2).transpose(0, 2, 1)}, SIZE)
    assert eight.boxes[0].tolist() == [50, 35, 70, 45]
    assert eight.scores[0].tolist() == [1, 0]


def test_two_outputs_are_corners_and_scores_behind_a_background() -> None:
    outputs = {"scores": np.array([[[0.1, 0.9]]]), "boxes": np.array([[[0.25, 0.5, 0.5, 1.0]]])}
    found = select(decode(outputs, SIZE))
    assert found == [Detection((24, 32, 48, 64), 0.9, 0)]


def test_unknown_shapes_and_formats_are_refused() -> None:
    with pytest.raises(DataError, match="not boxes"):
        decode({"logits": np.zeros((1, 1000))}, SIZE)
    with pytest.raises(DataError, match="yolox"):
        decode({"out": np.zeros((1, CELLS, 7))}, SIZE, "yolo_x")
    with pytest.raises(DataError, match="not boxes"):
        decode({"out": np.zeros((1, CELLS + 1, 7))}, SIZE, "yolox")


def test_suppression_keeps_the_best_of_each_class() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [1, 0, 11, 10], [50, 50, 60, 60.0]])
    scores = np.array([[0.6, 0], [0.9, 0], [0, 0.8], [0.7, 0]])
    found = select(Candidates(boxes, scores))
    assert [(d.label, d.score) for d in found] == [(0, 0.9), (1, 0.8), (0, 0.7)]


def test_iou() -> None:
    a, b = Detection((0, 0, 10, 10), 1, 0), Detection((5, 0, 15, 10), 1, 0)
    assert iou(a, b) == pytest.approx(1 / 3)
    assert iou(a, Detection((20, 0, 30, 10), 1, 0)) == 0


def test_matching_uses_each_box_once() -> None:
    reference = [Detection((0, 0, 10, 10), 0.9, 0), Detection((0, 0, 10, 9), 0.8, 0)]
    other = [Detection((0, 0, 10, 10), 0.85, 0), Detection((40, 40, 50, 50), 0.9, 0)]
    agreement = match(reference, other)
    assert agreement == (1, 2, 1, pytest.approx(0.05))


@pytest.mark.parametrize("form", ["yolox", "yolov5", "yolov8", "boxes"])
@pytest.mark.parametrize("shape", [(1, 4), (1, 1, 4), (4,), (1, 3, 2), (1, 3, 5, 7)])
def test_outputs_of_another_format_are_an_error(form: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        select(decode({"out": np.zeros(shape)}, SIZE, form))
    assert caught.value.code == "TW-1246"
