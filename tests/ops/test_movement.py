"""Reshape, Transpose and kin against NumPy and onnxruntime, in every stored order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_harness import EXACT, compare, lowered, matched, model_of, random_codes, run
from tile_harness import check_tiles

from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import movement
from tilewright.ops.builder import channels_last
from tilewright.ops.movement import reshape_layout
from tilewright.ops.reshape import Reshape, element_index
from tilewright.ops.slicing import Slice
from tilewright.ops.transpose import Transpose

S8 = Encoding(DType.S8, 0.5, 3)


def names(graph):
    return [type(n.op).__name__ for n in graph.nodes]


def same(*values):
    return dict.fromkeys(values, S8)


@st.composite
def reshapes(draw):
    """Two shapes of equal product, made by cutting and joining one list of factors."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def shape():
        edges = draw(st.sets(st.integers(1, max(1, len(factors) - 1)), max_size=3))
        parts = [0, *sorted(e for e in edges if e < len(factors)), len(factors)]
        return tuple(math.prod(factors[a:b]) for a, b in itertools.pairwise(parts))

    before = shape()
    return before, shape(), tuple(draw(st.permutations(range(len(before)))))


@given(reshapes())
@settings(max_examples=200, deadline=None)
def test_a_layout_that_reshape_layout_finds_makes_the_reshape_free(case):
    before, after, permutation = case
    order, out = reshape_layout(before, permutation, after)
    x = np.arange(math.prod(before)).reshape(before)
    stored = x.transpose(order).reshape(-1)
    np.testing.assert_array_equal(stored, x.reshape(after).transpose(out).reshape(-1))
    assert sorted(order) == sorted(permutation)


@pytest.mark.parametrize(
    ("before", "after", "order", "out"),
    [
        ((2, 8, 3, 4), (2, 8, 12), (0, 2, 3, 1), (0, 2, 1)),
        ((2, 8, 3, 4), (2, 2, 4, 12), (0, 2, 3, 1), (0, 3, 1, 2)),
        ((1, 8, 1, 1), (1, 8), (0, 2, 3, 1), (0, 1)),
        ((1, 8, 3, 4), (1, 96), (0, 1, 2, 3), (0, 1)),
        ((1, 255, 3, 4), (1, 3, 85, 3, 4), (0, 2, 3, 1), (0, 3, 4, 1, 2)),
    ],
)
def test_channels_last_features_keep_their_order_where_they_can(before, after, order, out):
    found_order, found_out = reshape_layout(before, channels_last(len(before)), after)
    assert found_order == order
    assert [a for a in found_out if after[a] != 1] == [a for a in out if after[a] != 1]


def test_a_channel_shuffle_stays_channels_last():
    # [1, 8, 3, 4] -> [1, 2, 4, 3, 4], axes 1 and 2 swapped, -> [1, 8, 3, 4]
    order, out = reshape_layout((1, 4, 2, 3, 4), (0, 3, 4, 2, 1), (1, 8, 3, 4))
    assert (order, out) == ((0, 3, 4, 1, 2), (0, 2, 3, 1))


CASES = [
    (model_of("Reshape", {"x": (2, 6, 3, 4)}, [np.array([2, 6, 12])]), ["Reshape"]),
    (
        model_of("Reshape", {"x": (2, 6, 3, 4)}, [np.array([2, 72])]),
        ["Transpose", "Reshape"],
    ),
    (model_of("Reshape", {"x": (2, 6, 3, 4)}, [np.array([2, 6, 3, 4])]), []),
    (model_of("Reshape", {"x": (1, 1, 1)}, [np.array([], np.int64)]), ["Reshape"]),
    (model_of("Reshape", {"x": (2, 6)}, [np.array([3, 4])]), ["Reshape"]),
    (model_of("Flatten", {"x": (2, 6, 1, 1)}), ["Reshape"]),
    (model_of("Flatten", {"x": (2, 3, 4)}, axis=2), ["Transpose", "Reshape"]),
    (model_of("Squeeze", {"x": (1, 6, 1, 4)}, [np.array([2])]), ["Reshape"]),
    (model_of("Unsqueeze", {"x": (6, 4)}, [np.array([0, 3])]), ["Reshape"]),
    (model_of("Identity", {"x": (1, 6, 3, 4)}), []),
    (model_of("Transpose", {"x": (1, 6, 3, 4)}, perm=[0, 2, 3, 1]), []),
    (model_of("Transpose", {"x": (2, 3, 4, 5, 2)}), []),
]


@pytest.mark.parametrize(("model", "operators"), CASES)
def test_it_moves_exactly_what_onnxruntime_moves(model, operators):
    graph = compare(movement, model, same("x", "y0"), np.random.default_rng(0))
    assert names(graph) == operators


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_stored_order_gives_the_same_tensor(order):
    rng = np.random.default_rng(1)
    model = model_of("Reshape", {"x": (2, 6, 4)}, [np.array([2, 2, 3, 4])])
    compare(movement, model, same("x", "y0"), rng, {"x": order})
    model = model_of("Transpose", {"x": (2, 6, 4)}, perm=[1, 2, 0])
    compare(movement, model, same("x", "y0"), rng, {"x": order})


def test_an_output_without_a_scale_takes_that_of_its_input():
    graph = lowered(movement, model_of("Identity", {"x": (2, 3)}), {"x": S8})
    assert graph.tensors[graph.outputs[0].tensor].encoding == S8


def test_another_scale_in_the_file_becomes_a_rescale():
    y = Encoding(DType.U8, 1.0, 100)
    model = model_of("Flatten", {"x": (2, 6, 1, 1)})
    graph = lowered(movement, model, {"x": S8, "y0": y})
    assert names(graph) == ["Reshape", "Slice"]
    assert isinstance(graph.nodes[-1].op, Slice)
    x = random_codes(S8, (2, 6, 1, 1), np.random.default_rng(2))
    wanted = np.clip((x.reshape(2, 6).astype(int) - 3 + 1) // 2 + 100, 0, 255)
    np.testing.assert_array_equal(run(graph, {"x": x})["y0"], wanted)


def test_constant_data_are_refused():
    model = model_of("Reshape", {"x": (2, 3)}, [np.array([6])])
    node = model.graph.node[0]
    node.input[0] = "c0"
    assert matched(movement, model).reason == "its data are constant"


def typed(shape, encoding=S8):
    return TensorType(encoding.dtype, shape, encoding.scale, encoding.zero_point)


@given(reshapes(), st.integers(0, 2**32 - 1), st.sampled_from([S8, EXACT]))
@settings(max_examples=80, deadline=None)
def test_tiles_of_a_reshape_write_each_byte_once(case, seed, encoding):
    before, after, _ = case
    rng = np.random.default_rng(seed)
    x = random_codes(encoding, before, rng)
    check_tiles(Reshape(after), [x], [typed(before, encoding)], typed(after, encoding), rng)


@given(
    st.permutations(range(4)),
    st.tuples(*[st.integers(1, 5)] * 4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_tiles_of_a_transpose_write_each_byte_once(axes, shape, seed):
    rng = np.random.default_rng(seed)
    out = tuple(shape[a] for a in axes)
    op = Transpose(tuple(axes))
    check_tiles(
        op, [random_codes(EXACT, shape, rng)], [typed(shape, EXACT)], typed(out, EXACT), rng
    )


def test_a_transpose_of_more_axes_than_an_instruction_has():
    shape, axes = (2, 1, 2, 3, 2, 2, 2, 2, 3), (8, 6, 4, 2, 0, 1, 3, 5, 7)
    rng = np.random.default_rng(3)
    out = tuple(shape[a] for a in axes)
    x = random_codes(S8, shape, rng)
    check_tiles(Transpose(axes), [x], [typed(shape)], typed(out), rng)


def test_element_index_of_a_scalar():
    assert element_index((), ()) == 0
    assert element_index((1, 2), (3, 4)) == 6
