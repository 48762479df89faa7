"""Pad in every mode against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from node_harness import compare, lowered, matched, model_of, random_codes, run

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import pad
from tilewright.ops.copying import UNIT
from tilewright.ops.pad import Pad

S8 = Encoding(DType.S8, 0.5, 3)
SHAPE = (2, 3, 4, 5)


def padded(pads, mode="constant", value=None, axes=None, shape=SHAPE):
    operands = [np.array(pads)]
    if value is not None or axes is not None:
        operands.append(None if value is None else np.float32(value))
    if axes is not None:
        operands.append(np.array(axes))
    return model_of("Pad", {"x": shape}, operands, mode=mode)


@given(st.lists(st.integers(-1, 3), min_size=8, max_size=8), st.integers(-60, 60), st.data())
@settings(max_examples=40, deadline=None)
def test_constant_pads_of_either_sign(pads, steps, data):
    assume(all(n + b + a > 0 for n, b, a in zip(SHAPE, pads[:4], pads[4:], strict=True)))
    order = tuple(data.draw(st.permutations(range(4))))
    model = padded(pads, value=steps / 2)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    compare(pad, model, {"x": S8, "y0": S8}, rng, {"x": order})


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [1, 2, 3, 4, 1, 2, 3, 4], [0] * 8])
def test_border_modes(mode, pads):
    compare(pad, padded(pads, mode), {"x": S8, "y0": S8}, np.random.default_rng(0))


def test_chosen_axes():
    model = padded([1, 2, 0, 1], value=1.5, axes=[-1, 1])
    compare(pad, model, {"x": S8, "y0": S8}, np.random.default_rng(1))


def test_nothing_to_pad_is_no_work():
    assert lowered(pad, padded([0] * 8), {"x": S8, "y0": S8}).nodes == ()


def test_an_infinite_pad_is_the_lowest_code():
    graph = lowered(pad, padded([0, 1], value=-np.inf, shape=(2,)), {"x": S8, "y0": S8})
    x = np.array([5, 6], np.int8)
    assert run(graph, {"x": x})["y0"].tolist() == [5, 6, -128]


def test_the_pad_is_a_code_of_the_output():
    y = Encoding(DType.U8, 0.25, 128)
    graph = lowered(pad, padded([1, 0], value=2.0, shape=(3,)), {"x": S8, "y0": y})
    x = random_codes(S8, (3,), np.random.default_rng(2))
    wanted = [136, *np.clip((x.astype(int) - 3) * 2 + 128, 0, 255)]
    assert run(graph, {"x": x})["y0"].tolist() == wanted


def test_refusals_say_why():
    assert (
        "larger than the input in reflect"
        in matched(pad, padded([4, 0, 0, 0] * 2, "reflect")).reason
    )
    assert "negative in edge" in matched(pad, padded([0, -1, 0, 0] * 2, "edge")).reason


def test_pads_that_leave_nothing_are_an_error():
    with pytest.raises(QuantizationError, match="leave nothing"):
        Pad(*UNIT, (-2,), (-2,), 0).infer([TensorType(DType.S8, (4,), 1.0, 0)], "here")
