"""Gather by any constant indices, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from node_harness import EXACT, compare, lowered, matched, model_of

from tilewright.graph import DType, Encoding
from tilewright.ops import gather

S8 = Encoding(DType.S8, 0.25, -7)
SHAPE = (2, 5, 6, 7)


@pytest.mark.parametrize(
    ("indices", "axis"),
    [
        ([0, 1, 3], 1),
        ([[0, 1], [4, 2]], 1),
        ([[5, 0, -1]], 2),
        ([[[1], [0]]], 0),
        ([6, 1, 0, 5, 5, 2], 3),
    ],
)
@pytest.mark.parametrize("encoding", [S8, EXACT])
def test_gather_is_that_of_onnxruntime(indices, axis, encoding):
    model = model_of("Gather", {"x": SHAPE}, [np.array(indices)], axis=axis)
    compare(gather, model, {"x": encoding, "y0": encoding}, np.random.default_rng(1))


def test_an_input_in_another_stored_order():
    model = model_of("Gather", {"x": SHAPE}, [np.array([[0, 2], [3, 1]])], axis=1)
    order = {"x": (1, 3, 0, 2)}
    compare(gather, model, {"x": S8, "y0": S8}, np.random.default_rng(2), order)


def test_runs_are_as_long_as_possible():
    model = model_of("Gather", {"x": SHAPE}, [np.array([0, 1, 2, 4, 4, 4, 3])], axis=1)
    graph = lowered(gather, model, {"x": S8, "y0": S8})
    slices = [n.op for n in graph.nodes if type(n.op).__name__ == "Slice"]
    assert [(op.starts[3], op.steps[3], op.sizes[3]) for op in slices] == [
        (0, 1, 3), (4, 0, 3), (3, 1, 1)
    ]  # fmt: skip


def test_scattered_indices_are_refused():
    rng = np.random.default_rng(3)
    model = model_of("Gather", {"x": (500, 2)}, [rng.integers(0, 500, 400)], axis=0)
    assert "evenly spaced runs; 64 are supported" in matched(gather, model).reason
