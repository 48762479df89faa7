"""Concat of inputs with equal and with different scales."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from node_harness import compare, lowered, model_of, random_codes, run, with_shapes

from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import concat
from tilewright.ops.concat import Concat
from tilewright.ops.copying import UNIT
from tilewright.ops.protocol import Span
from tilewright.ops.transpose import Transpose

S8 = Encoding(DType.S8, 0.5, 3)


@pytest.mark.parametrize("axis", range(-4, 4))
def test_equal_scales_join_codes(axis):
    shapes = {f"x{k}": [2, 3, 4, 5] for k in range(3)}
    for k, shape in enumerate(shapes.values()):
        shape[axis] += k
    model = model_of("Concat", shapes, axis=axis)
    compare(concat, model, dict.fromkeys([*shapes, "y0"], S8), np.random.default_rng(axis + 4))


def test_inputs_with_other_scales_and_types_are_rescaled():
    encodings = {
        "a": Encoding(DType.U8, 0.25, 128),
        "b": Encoding(DType.S16, 0.001, 0),
        "c": S8,
        "y0": S8,
    }
    model = model_of("Concat", {"a": (1, 2, 3, 4), "b": (1, 5, 3, 4), "c": (1, 1, 3, 4)}, axis=1)
    compare(concat, model, encodings, np.random.default_rng(0), steps=0.5 + 1e-3)


def test_the_input_that_is_one_with_the_output_keeps_its_codes():
    model = model_of("Concat", {"a": (1, 4), "b": (1, 4)}, axis=1)
    graph = lowered(concat, model, {"a": S8, "b": Encoding(DType.S8, 0.25, 3), "y0": S8})
    a, b = (random_codes(S8, (1, 4), np.random.default_rng(k)) for k in range(2))
    got = run(graph, {"a": a, "b": b})["y0"]
    np.testing.assert_array_equal(got[:, :4], a)
    np.testing.assert_array_equal(got[:, 4:], np.clip((b.astype(int) - 3 + 1 >> 1) + 3, -128, 127))


@pytest.mark.parametrize(
    "orders", list(itertools.permutations(itertools.permutations(range(3)), 2))
)
def test_the_layout_is_that_of_the_larger_input(orders):
    model = model_of("Concat", {"a": (2, 3, 4), "b": (2, 5, 4)}, axis=1)
    permutations = dict(zip("ab", orders, strict=True))
    encodings = dict.fromkeys(["a", "b", "y0"], S8)
    graph = compare(concat, model, encodings, np.random.default_rng(1), permutations)
    assert graph.outputs[0].permutation == orders[1]


def test_an_input_outside_a_tile_costs_one_element():
    t = TensorType(DType.S8, (2, 4), 0.5, 3)
    out = TensorType(DType.S8, (2, 8), 0.5, 3)
    op = Concat(1, (UNIT.m, UNIT.m), (UNIT.shift, UNIT.shift))
    first, second = op.needs((Span(0, 2), Span(0, 3)), [t, t], out)
    assert first == (Span(0, 2), Span(0, 3))
    assert second == (Span(0, 1), Span(0, 1))


def test_no_transpose_where_layouts_agree():
    model = model_of("Concat", {"a": (1, 2, 3, 3), "b": (1, 4, 3, 3)}, axis=1)
    graph = lowered(concat, model, dict.fromkeys(["a", "b", "y0"], S8))
    assert not any(isinstance(n.op, Transpose) for n in graph.nodes)
    assert graph.nodes[0].op.axis == 3


def test_constant_inputs_take_the_scale_of_the_output():
    constant = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3) / 2
    model = model_of("Concat", {"x": (1, 5, 1, 3)}, [constant], axis=1)
    order = {"x": (0, 3, 2, 1)}
    compare(concat, model, {"x": S8, "y0": S8}, np.random.default_rng(2), order)


def test_one_input_twice():
    model = model_of("Concat", {"x": (1, 2, 3)}, axis=1)
    model.graph.node[0].input.append("x")
    model = with_shapes(model, [(1, 4, 3)])
    compare(concat, model, {"x": S8, "y0": S8}, np.random.default_rng(3))
