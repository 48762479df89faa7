"""Max and average pooling against onnxruntime, brute force and the golden vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from node_harness import (
    EXACT,
    case_encoding,
    compare,
    golden,
    lowered,
    matched,
    model_of,
    onnxruntime_run,
    random_codes,
    run,
    with_shapes,
)

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import pool
from tilewright.ops.pattern import Refusal
from tilewright.ops.pool import AveragePool, counted_taps, output_size

U8 = Encoding(DType.U8, 0.5, 128)
ROUNDING = 0.5 + 1e-3


@st.composite
def pools(draw, axes):
    """Attributes that onnxruntime accepts: begin and end pads smaller than the kernel."""
    kernel = draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes))
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    attributes = {
        "kernel_shape": kernel,
        "pads": pads,
        "strides": draw(st.lists(st.integers(1, 3), min_size=axes, max_size=axes)),
        "dilations": draw(st.lists(st.integers(1, 2), min_size=axes, max_size=axes)),
        "ceil_mode": draw(st.integers(0, 1)),
    }
    size = [
        draw(st.integers(max(1, (k - 1) * d + 1 - b), 9))
        for k, d, b in zip(kernel, attributes["dilations"], pads, strict=False)
    ]
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size), attributes


def check(op_type, shape, attributes, encoding, out_encoding, steps, seed):
    model = model_of(op_type, {"x": shape}, **attributes)
    # onnx's own inference counts windows of ceil mode that onnxruntime does not have.
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (y,) = onnxruntime_run(model, {"x": np.zeros(shape, np.float32)}).values()
    model = with_shapes(model, [y.shape])
    assume(not isinstance(matched(pool, model), Refusal))
    encodings = {"x": encoding, "y0": out_encoding}
    compare(pool, model, encodings, np.random.default_rng(seed), steps=steps)


@given(st.one_of(pools(1), pools(2)), st.sampled_from([U8, EXACT]), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_max_pool_is_that_of_onnxruntime(case, encoding, seed):
    check("MaxPool", *case, encoding, encoding, 0.0, seed)


@given(
    st.one_of(pools(1), pools(2)),
    st.integers(0, 1),
    st.sampled_from([U8, EXACT]),
    st.integers(0, 9),
)
@settings(max_examples=100, deadline=None)
def test_average_pool_is_that_of_onnxruntime_to_half_a_step(case, include, encoding, seed):
    shape, attributes = case
    attributes = {**attributes, "count_include_pad": include}
    check("AveragePool", shape, attributes, encoding, encoding, ROUNDING, seed)


def test_golden_vectors():
    for case in golden("average"):
        rows, count = case["x"].shape
        x, y = case_encoding(case, "x"), case_encoding(case, "y")
        model = model_of("AveragePool", {"x": (1, rows, count)}, kernel_shape=[count])
        graph = lowered(pool, model, {"x": x, "y0": y})
        got = run(graph, {"x": case["x"][None]})["y0"]
        np.testing.assert_array_equal(got[0, :, 0], case["y"])


def test_global_max_pool():
    model = model_of("GlobalMaxPool", {"x": (2, 3, 4, 5)})
    compare(pool, model, {"x": U8, "y0": U8}, np.random.default_rng(0))


def test_another_scale_behind_a_max_pool():
    y = Encoding(DType.S8, 1.0, -20)
    model = model_of("MaxPool", {"x": (1, 3, 6, 6)}, kernel_shape=[2, 2], strides=[2, 2])
    compare(pool, model, {"x": U8, "y0": y}, np.random.default_rng(1), steps=ROUNDING)


def test_a_relu_fuses_behind_an_average():
    model = model_of("AveragePool", {"x": (1, 2, 4, 4)}, kernel_shape=[2, 2])
    relu = model.graph.node.add()
    relu.op_type = "Relu"
    relu.input.append("y0")
    relu.output.append("z")
    model.graph.value_info.append(model.graph.output[0])
    model.graph.output[0].name = "z"
    graph = lowered(pool, model, {"x": U8, "z": U8})
    assert graph.nodes[0].op.clamp == (128, 255)
    x = random_codes(U8, (1, 2, 4, 4), np.random.default_rng(2))
    assert run(graph, {"x": x})["z"].min() >= 128


def test_refusals_say_why():
    def reason(**attributes):
        return matched(pool, model_of("MaxPool", {"x": (1, 1, 4, 4)}, **attributes)).reason

    wide = {"kernel_shape": [1, 2], "pads": [0, 0, 0, 3], "strides": [1, 1]}
    assert reason(**wide) == "one of its windows lies wholly in padding"
    assert "automatic" in reason(kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    deep = with_shapes(
        model_of("MaxPool", {"x": (1, 1, 4, 4, 4)}, kernel_shape=[2, 2, 2]), [(1, 1, 3, 3, 3)]
    )
    assert matched(pool, deep).reason == "it pools over 3 axes; 1 and 2 are supported"


def test_a_shape_that_the_attributes_do_not_give_is_refused():
    model = model_of("MaxPool", {"x": (1, 1, 4, 4)}, kernel_shape=[2, 2])
    found = matched(pool, with_shapes(model, [(1, 1, 4, 4)]))
    assert found.reason == "its output is stated as (1, 1, 4, 4), its attributes give (1, 1, 3, 3)"


def test_counted_taps_by_hand():
    # Rows -1..5 of a padded image of 5; three taps, stride 2.
    np.testing.assert_array_equal(counted_taps(3, 3, 2, 1, 1, 0, 5), [2, 3, 2])
    np.testing.assert_array_equal(counted_taps(3, 3, 2, 1, 1, -1, 6), [3, 3, 3])


def test_no_window_of_ceil_mode_starts_beyond_the_image():
    assert output_size(5, 2, 2, (0, 0), ceil=False) == 2
    assert output_size(5, 2, 2, (0, 0), ceil=True) == 3
    assert output_size(4, 1, 3, (0, 2), ceil=True) == 2


def test_a_window_too_large_to_sum_is_an_error():
    op = AveragePool((3000, 3000), (1, 1), (1, 1), (0,) * 4, (0, 0, 3000, 3000), (0, 1), None)
    with pytest.raises(QuantizationError, match="too large"):
        op.infer([TensorType(DType.S16, (1, 3000, 3000, 1), 1.0, 0)], "here")
