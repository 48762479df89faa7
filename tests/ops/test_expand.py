"""Expand and Tile against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from node_harness import EXACT, compare, lowered, model_of

from tilewright.graph import DType, Encoding
from tilewright.ops import expand

S8 = Encoding(DType.S8, 0.25, -7)


@pytest.mark.parametrize(
    ("before", "shape"),
    [
        ((2, 1, 6), (2, 5, 6)),
        ((1, 3, 1, 1), (4, 1, 2, 5)),
        ((3, 1), (2, 3, 4)),
        ((3, 4), (3, 4)),
    ],
)
@pytest.mark.parametrize("encoding", [S8, EXACT])
def test_expand_is_that_of_onnxruntime(before, shape, encoding):
    model = model_of("Expand", {"x": before}, [np.array(shape)])
    compare(expand, model, {"x": encoding, "y0": encoding}, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("shape", "repeats"),
    [((2, 3, 4), (1, 2, 3)), ((1, 3, 5, 2), (2, 4, 1, 1)), ((6,), (3,)), ((2, 2), (1, 1))],
)
@pytest.mark.parametrize("encoding", [S8, EXACT])
def test_tile_is_that_of_onnxruntime(shape, repeats, encoding):
    model = model_of("Tile", {"x": shape}, [np.array(repeats)])
    compare(expand, model, {"x": encoding, "y0": encoding}, np.random.default_rng(2))


def test_an_input_in_another_stored_order():
    model = model_of("Tile", {"x": (2, 3, 4, 1)}, [np.array([1, 2, 3, 5])])
    order = {"x": (1, 3, 0, 2)}
    compare(expand, model, {"x": S8, "y0": S8}, np.random.default_rng(3), order)


def test_axes_of_one_element_repeat_in_a_single_operator():
    model = model_of("Expand", {"x": (2, 1, 1)}, [np.array((2, 4, 5))])
    graph = lowered(expand, model, {"x": S8, "y0": S8})
    assert [type(n.op).__name__ for n in graph.nodes].count("Slice") == 1
