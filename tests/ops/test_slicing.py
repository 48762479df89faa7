"""Slice, Split and Gather against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from node_harness import EXACT, compare, lowered, matched, model_of, random_codes, run

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import slicing
from tilewright.ops.copying import UNIT
from tilewright.ops.slicing import Slice

S8 = Encoding(DType.S8, 0.25, -7)
BIG, SMALL = 2**63 - 1, -(2**63)


def sliced(shape, starts, ends, axes=None, steps=None):
    operands = [np.array(starts), np.array(ends)]
    operands += [None if axes is None else np.array(axes)]
    operands += [None if steps is None else np.array(steps)]
    while operands[-1] is None:
        operands.pop()
    return model_of("Slice", {"x": shape}, operands)


SHAPE = (2, 5, 6, 7)
SLICES = [
    sliced(SHAPE, [0, 1], [2, 4]),
    sliced(SHAPE, [0, 0], [BIG, BIG], [2, 3], [2, 2]),
    sliced(SHAPE, [1, 1], [BIG, BIG], [-2, -1], [2, 3]),
    sliced(SHAPE, [-1, -2], [SMALL, 0], [1, 3], [-1, -2]),
    sliced(SHAPE, [100], [-100], [1], [-2]),
    sliced(SHAPE, [-3], [-1], [2]),
    sliced((9,), [7], [1], [0], [-3]),
]


@pytest.mark.parametrize("model", SLICES)
@pytest.mark.parametrize("encoding", [S8, EXACT])
def test_slices_are_those_of_onnxruntime(model, encoding):
    compare(slicing, model, {"x": encoding, "y0": encoding}, np.random.default_rng(4))


def test_a_slice_of_everything_is_no_work():
    graph = lowered(slicing, sliced((2, 3), [0], [BIG]), {"x": S8, "y0": S8})
    assert graph.nodes == ()


def test_a_slice_keeps_the_stored_order_of_its_input():
    rng = np.random.default_rng(5)
    order = {"x": (1, 3, 0, 2)}
    graph = compare(slicing, SLICES[3], {"x": S8, "y0": S8}, rng, order)
    assert graph.outputs[0].permutation == order["x"]


@pytest.mark.parametrize(("axis", "lengths"), [(1, [1, 3, 1]), (-1, [4, 3]), (0, None)])
def test_split_makes_one_slice_for_each_output(axis, lengths):
    outputs = len(lengths) if lengths else 2
    operands = [] if lengths is None else [np.array(lengths)]
    attributes = {"num_outputs": 2} if lengths is None else {}
    model = model_of("Split", {"x": SHAPE}, operands, outputs, axis=axis, **attributes)
    encodings = dict.fromkeys(["x", *(f"y{i}" for i in range(outputs))], S8)
    graph = compare(slicing, model, encodings, np.random.default_rng(6))
    assert len(graph.nodes) == outputs


def test_outputs_that_nothing_reads_need_no_scale():
    model = model_of("Split", {"x": (4, 2)}, [np.array([1, 3])], 2, axis=0)
    model.graph.value_info.append(model.graph.output.pop(0))
    graph = lowered(slicing, model, {"x": S8, "y1": S8})
    assert len(graph.nodes) == 1


@pytest.mark.parametrize(
    ("indices", "axis"),
    [(2, 1), (-1, 3), ([1, 2, 3], 1), ([4, 2, 0], 1), ([3, 3], 2), ([5], 3), (0, 0)],
)
def test_gather_of_evenly_spaced_indices(indices, axis):
    model = model_of("Gather", {"x": SHAPE}, [np.array(indices)], axis=axis)
    compare(slicing, model, {"x": S8, "y0": S8}, np.random.default_rng(7))


def test_other_gathers_are_refused():
    model = model_of("Gather", {"x": SHAPE}, [np.array([0, 1, 3])], axis=1)
    assert matched(slicing, model).reason == "its indices are not evenly spaced"
    model = model_of("Gather", {"x": SHAPE}, [np.array([[0, 1]])], axis=1)
    assert "2 axes" in matched(slicing, model).reason


def test_bounds_that_are_computed_are_refused():
    model = SLICES[0]
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.graph.initializer[:]
    for name in ("c0", "c1"):
        value = changed.graph.input.add()
        value.name = name
    assert matched(slicing, changed).reason == "its bounds are computed at run time"


def test_a_slice_rescales_where_the_file_gives_another_scale():
    y = Encoding(DType.U8, 0.5, 128)
    graph = lowered(slicing, sliced((4, 8), [1], [3]), {"x": S8, "y0": y})
    x = random_codes(S8, (4, 8), np.random.default_rng(8))
    wanted = np.clip((x[1:3].astype(int) + 7 + 1) // 2 + 128, 0, 255)
    np.testing.assert_array_equal(run(graph, {"x": x})["y0"], wanted)


def test_a_slice_that_leaves_its_input_is_an_error():
    op = Slice(*UNIT, (2,), (1,), (3,))
    with pytest.raises(QuantizationError, match="leaves its input"):
        op.infer([TensorType(DType.S8, (4,), 1.0, 0)], "here")
