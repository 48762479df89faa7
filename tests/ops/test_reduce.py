"""Means and sums over every set of axes and in every stored order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from node_harness import EXACT, case_encoding, compare, golden, lowered, matched, model_of, run

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import reduce
from tilewright.ops.reduce import Reduce, sum_bound

S8 = Encoding(DType.S8, 0.125, 10)
ROUNDING = 0.5 + 1e-3
SHAPE = (2, 3, 4, 5)
AXES = [axes for n in range(1, 5) for axes in itertools.combinations(range(4), n)]


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_over_any_axes(axes, keepdims):
    model = model_of("ReduceMean", {"x": SHAPE}, [np.array(axes)], keepdims=keepdims)
    rng = np.random.default_rng(len(axes))
    compare(reduce, model, {"x": S8, "y0": S8}, rng, steps=ROUNDING)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_means_in_any_stored_order(order):
    model = model_of("ReduceMean", {"x": SHAPE}, [np.array([1, -1])], keepdims=0)
    rng = np.random.default_rng(0)
    compare(reduce, model, {"x": EXACT, "y0": EXACT}, rng, {"x": order}, steps=ROUNDING)


def test_no_permutation_where_summed_axes_are_neighbours():
    model = model_of("ReduceMean", {"x": SHAPE}, [np.array([2, 3])])
    graph = lowered(reduce, model, {"x": S8, "y0": S8})
    assert [type(n.op) for n in graph.nodes] == [Reduce]
    assert graph.nodes[0].op.axes == (1, 3)


def test_axes_of_extent_one_cost_nothing():
    model = model_of("ReduceMean", {"x": (1, 3, 1, 5)}, [np.array([0, 3])], keepdims=0)
    rng = np.random.default_rng(1)
    compare(reduce, model, {"x": S8, "y0": S8}, rng, steps=ROUNDING)
    model = model_of("ReduceMean", {"x": (1, 3, 1, 5)}, [np.array([2])], keepdims=1)
    compare(reduce, model, {"x": S8, "y0": S8}, rng)


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (2, 3, 9)])
def test_global_average_pool(shape):
    model = model_of("GlobalAveragePool", {"x": shape})
    rng = np.random.default_rng(2)
    graph = compare(reduce, model, {"x": S8, "y0": S8}, rng, steps=ROUNDING)
    assert [type(n.op) for n in graph.nodes] == [Reduce]


def test_sums():
    y = Encoding(DType.S16, 0.125, 0)
    model = model_of("ReduceSum", {"x": SHAPE}, [np.array([1])])
    compare(reduce, model, {"x": S8, "y0": y}, np.random.default_rng(3))
    every = model_of("ReduceSum", {"x": (2, 3)}, keepdims=0)
    compare(reduce, every, {"x": S8, "y0": y}, np.random.default_rng(4))


def test_a_long_sum_of_16_bit_codes_is_shifted_before_r24():
    count = 2**23 + 2**10
    model = model_of("ReduceMean", {"x": (1, count)}, [np.array([1])])
    graph = lowered(reduce, model, {"x": EXACT, "y0": EXACT})
    assert graph.nodes[0].op.pre_shift == 1
    x = np.full((1, count), 32767, np.int16)
    assert run(graph, {"x": x})["y0"].tolist() == [[32767]]
    x[0, ::2] = -32767
    assert run(graph, {"x": x})["y0"].tolist() == [[0]]


def test_a_sum_that_cannot_be_proven_is_an_error():
    x = TensorType(DType.U8, (1,), 1.0, 0)
    assert sum_bound(x, 1000, "here") == 255000
    with pytest.raises(QuantizationError, match="too large"):
        sum_bound(x, 2**31, "here")


def test_golden_vectors():
    for case in golden("average"):
        rows, count = case["x"].shape
        x, y = case_encoding(case, "x"), case_encoding(case, "y")
        model = model_of("ReduceMean", {"x": (rows, count)}, [np.array([1])], keepdims=0)
        graph = lowered(reduce, model, {"x": x, "y0": y})
        np.testing.assert_array_equal(run(graph, {"x": case["x"]})["y0"], case["y"])


def test_nothing_to_reduce_is_refused():
    model = model_of("ReduceMean", {"x": SHAPE}, noop_with_empty_axes=1)
    assert matched(reduce, model).reason == "it has no axes to reduce"
