"""Each old operator form becomes the opset 21 form with the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_nets import (
    attribute,
    imported,
    make_model,
    make_proto,
    node,
    normal,
    only,
    ops,
    random_feeds,
)
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tilewright.errors import ModelError
from tilewright.importer import import_model, run_model
from tilewright.importer.forms.convolution import resolve_auto_pad


def one(op, inputs, outputs="y", shape=(2, 3, 4, 5), constants=None, opset=21, **attributes):
    return make_model(
        [node(op, inputs, outputs, **attributes)], {"x": shape}, outputs.split(), constants, opset
    )


def int64(*values):
    return np.asarray(values, np.int64)


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
def test_squeeze_unsqueeze_flatten_become_reshape(opset):
    old = opset < 13
    constants = {} if old else {"a": int64(0, -1), "b": int64(1)}
    nodes = [
        node("Squeeze", "x", "s", axes=[0, 4 if opset == 9 else -1])
        if old
        else node("Squeeze", "x a", "s"),
        node("Unsqueeze", "s", "u", axes=[1]) if old else node("Unsqueeze", "s b", "u"),
        node("Relu", "u", "r"),
        node("Flatten", "r", "y", axis=2),
    ]
    model = make_model(nodes, {"x": (1, 3, 4, 5, 1)}, ["y"], constants, opset)
    result = imported(model).model
    assert ops(result) == ["Relu", "Reshape"]
    assert list(result.graph.outputs[0].shape) == [3, 20]


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"])
@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_take_axes_as_input(kind, opset, keepdims):
    by_input = opset >= 18 or (kind == "ReduceSum" and opset >= 13)
    model = (
        one(kind, "x a", constants={"a": int64(-1, 1)}, opset=opset, keepdims=keepdims)
        if by_input
        else one(kind, "x", opset=opset, keepdims=keepdims, axes=[3, 1] if opset < 11 else [-1, 1])
    )
    result = imported(model).model
    axes = only(result, kind).inputs[1].const_value.numpy()
    assert axes.tolist() == [1, 3]


def test_reduction_without_axes_is_over_all_or_none():
    assert only(imported(one("ReduceMax", "x", opset=13)).model, "ReduceMax").inputs[
        1
    ].const_value.numpy().tolist() == [0, 1, 2, 3]
    noop = imported(one("ReduceMax", "x", opset=18, noop_with_empty_axes=1)).model
    assert ops(noop) == ["Identity"]


@pytest.mark.parametrize("opset", [9, 11, 12, 13])
def test_clip_has_two_scalar_bounds(opset):
    model = (
        one("Clip", "x", opset=opset, min=-0.5)
        if opset < 11
        else one("Clip", "x a", constants={"a": np.float32(-0.5)}, opset=opset)
    )
    clip = only(imported(model).model, "Clip")
    assert [v.const_value.numpy() for v in clip.inputs[1:]] == [
        np.float32(-0.5),
        np.finfo(np.float32).max,
    ]


@pytest.mark.parametrize("opset", [9, 10, 13])
def test_slice_bounds_are_clamped_and_axes_counted_from_the_front(opset):
    if opset < 10:
        model = one("Slice", "x", opset=opset, starts=[1, -3], ends=[99, -1], axes=[1, 3])
    else:
        constants = {"s": int64(1, -3), "e": int64(99, -1), "a": int64(1, 3 if opset < 11 else -1)}
        model = one("Slice", "x s e a", constants=constants, opset=opset)
    inputs = [
        v.const_value.numpy().tolist() for v in only(imported(model).model, "Slice").inputs[1:]
    ]
    assert inputs == [[1, 2], [3, 4], [1, 3], [1, 1]]


@given(
    st.integers(1, 7),
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.sampled_from([-3, -2, -1, 1, 2, 3]),
)
@settings(max_examples=40, deadline=None)
def test_slice_keeps_its_elements(size, start, end, step):
    constants = {"s": int64(start), "e": int64(end), "a": int64(0), "t": int64(step)}
    picked = np.arange(size)[slice(start, end, step)]
    if picked.size == 0 or (step < 0 and (end < -size or start < -size)):
        return
    imported(one("Slice", "x s e a t", shape=(size, 2), constants=constants))


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_split_states_its_lengths(opset):
    outputs = "y z"
    if opset == 9:
        model = one("Split", "x", outputs, shape=(2, 7), opset=opset, axis=1, split=[3, 4])
        lengths = [3, 4]
    elif opset == 13:
        model = one("Split", "x s", outputs, (2, 7), {"s": int64(3, 4)}, opset=opset, axis=-1)
        lengths = [3, 4]
    else:
        model = one("Split", "x", outputs, shape=(2, 7), opset=opset, axis=-1, num_outputs=2)
        lengths = [4, 3]
    split = only(imported(model).model, "Split")
    assert split.inputs[1].const_value.numpy().tolist() == lengths
    assert attribute(split, "axis") == 1


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_top_k(opset):
    k = {} if opset == 9 else {"k": int64(2)}
    attributes = {"k": 2} if opset == 9 else {}
    model = make_model(
        [node("TopK", "x" if opset == 9 else "x k", "y i", axis=3, **attributes)],
        {"x": (1, 2, 3, 6)},
        ["y", "i"],
        k,
        opset,
        types={"i": TensorProto.INT64},
    )
    assert attribute(only(imported(model).model, "TopK"), "largest") == 1


@pytest.mark.parametrize("opset", [9, 11, 18])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_has_pads_for_every_axis(opset, mode):
    if opset == 9:
        model = one("Pad", "x", opset=opset, mode=mode, pads=[0, 0, 1, 2, 0, 0, 3, 1])
    elif opset == 11:
        constants = {"p": int64(0, 0, 1, 2, 0, 0, 3, 1)}
        model = one("Pad", "x p", constants=constants, opset=opset, mode=mode)
    else:
        constants = {"p": int64(1, 2, 3, 1), "a": int64(-2, 3)}
        model = one("Pad", "x p - a", constants=constants, opset=opset, mode=mode)
    pad = only(imported(model).model, "Pad")
    assert pad.inputs[1].const_value.numpy().tolist() == [0, 0, 1, 2, 0, 0, 3, 1]


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 5, 1, 1), (1, 1, 6), (3, 4)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_softmax_before_opset_13_is_over_the_flattened_axes(kind, shape, axis):
    attributes = {} if axis is None else {"axis": axis}
    imported(one(kind, "x", shape=shape, opset=11, **attributes))


def test_softmax_over_the_only_long_axis_is_one_node():
    model = imported(one("Softmax", "x", shape=(2, 5, 1, 1), opset=11)).model
    assert ops(model) == ["Softmax"] and attribute(only(model, "Softmax"), "axis") == 1


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [9, 10])
def test_upsample_and_resize_10(mode, opset):
    scales = {"s": np.asarray([1, 1, 2, 3], np.float32)}
    kind = "Upsample" if opset == 9 else "Resize"
    result = imported(one(kind, "x s", constants=scales, opset=opset, mode=mode)).model
    assert attribute(only(result, "Resize"), "coordinate_transformation_mode") == "asymmetric"


@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.4, 1.0), (0.5, 2.0), (1.5, 1.5)])
def test_resize_10_nearest_takes_the_ceiling_where_it_shrinks(scales):
    constants = {"s": np.asarray([1, 1, *scales], np.float32)}
    imported(one("Resize", "x s", shape=(1, 1, 10, 8), constants=constants, opset=10))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "transformation", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("sizes", [(8, 10), (9, 7), (2, 5)])
def test_resize_sizes_become_scales(mode, transformation, sizes):
    constants = {"s": int64(2, 3, *sizes)}
    model = one(
        "Resize",
        "x - - s",
        constants=constants,
        opset=13,
        mode=mode,
        coordinate_transformation_mode=transformation,
    )
    result = imported(model).model
    if "Resize" in ops(result):
        by_scales = only(result, "Resize").inputs[2] is not None
        assert by_scales == (sizes != (9, 7)), "float32(7 / 5) * 5 is below 7"
    assert list(result.graph.outputs[0].shape) == [2, 3, *sizes]


def test_resize_of_opset_18_with_axes():
    constants = {"s": np.asarray([2, 2], np.float32)}
    result = imported(one("Resize", "x - s", constants=constants, opset=18, axes=[2, 3])).model
    assert only(result, "Resize").inputs[2].const_value.numpy().tolist() == [1, 1, 2, 2]


def test_resize_tf_half_pixel():
    constants = {"r": np.zeros(0, np.float32), "s": np.asarray([1, 1, 1.5, 0.6], np.float32)}
    imported(
        one(
            "Resize",
            "x r s",
            shape=(1, 2, 8, 10),
            constants=constants,
            opset=11,
            coordinate_transformation_mode="tf_half_pixel_for_nn",
            nearest_mode="floor",
        )
    )


WINDOWS = st.tuples(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(5, 12), st.integers(5, 12)
)


@given(WINDOWS, st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]))
@settings(max_examples=30, deadline=None)
def test_conv_auto_pad(window, auto_pad):
    kernel, stride, dilation, height, width = window
    dilation = 1 if auto_pad.startswith("SAME") else dilation
    if (kernel - 1) * dilation + 1 > 5:
        return
    model = one(
        "Conv",
        "x w",
        shape=(1, 2, height, width),
        constants={"w": normal(3, 2, kernel, kernel)},
        opset=11,
        auto_pad=auto_pad,
        strides=[stride, stride],
        dilations=[dilation, dilation],
    )
    conv = only(imported(model).model, "Conv")
    assert set(conv.attributes) == {"kernel_shape", "strides", "dilations", "pads", "group"}


@given(WINDOWS, st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_pool_auto_pad(window, auto_pad, average):
    kernel, stride, _, height, width = window
    if stride > kernel and auto_pad != "VALID":
        return  # onnxruntime refuses these
    model = one(
        "AveragePool" if average else "MaxPool",
        "x",
        shape=(1, 2, height, width),
        opset=10,
        auto_pad=auto_pad,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
    )
    pool = [n for n in imported(model).model.graph if n.op_type.endswith("Pool")]
    assert all("auto_pad" not in n.attributes for n in pool)


@pytest.mark.parametrize("opset", [9, 11, 18, 19])
@pytest.mark.parametrize("counted", [0, 1])
def test_average_pool_with_padding(opset, counted):
    imported(
        one(
            "AveragePool",
            "x",
            shape=(1, 2, 7, 9),
            opset=opset,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            count_include_pad=counted,
        )
    )


@pytest.mark.parametrize("dilations", [None, [1, 1]])
def test_average_pool_states_no_dilations_that_change_nothing(dilations):
    given = {} if dilations is None else {"dilations": dilations}
    model = one("AveragePool", "x", shape=(1, 2, 7, 9), opset=19, kernel_shape=[3, 3], **given)
    pool = only(imported(model).model, "AveragePool")
    assert "dilations" not in pool.attributes


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [7, 8, 9, 10])
def test_pool_with_ceil_mode(kind, size):
    imported(
        one(
            kind,
            "x",
            shape=(1, 2, size, size),
            opset=11,
            kernel_shape=[3, 3],
            strides=[2, 2],
            ceil_mode=1,
        )
    )


def test_odd_padding_goes_to_the_stated_side():
    assert resolve_auto_pad("SAME_UPPER", [6], [3], [2], [1]) == [0, 1]
    assert resolve_auto_pad("SAME_LOWER", [6], [3], [2], [1]) == [1, 0]
    assert resolve_auto_pad("VALID", [6, 6], [3, 3], [2, 2], [1, 1]) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 2]},
        {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 3], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "auto_pad": "VALID"},
        {"strides": [2, 2], "output_shape": [9, 11]},
        {"strides": [2, 2], "output_shape": [8, 10], "auto_pad": "SAME_UPPER"},
        {"strides": [3, 3], "dilations": [2, 1], "group": 2},
    ],
)
def test_conv_transpose_states_pads_and_output_padding(attributes):
    model = one(
        "ConvTranspose",
        "x w b",
        shape=(1, 4, 4, 5),
        constants={"w": normal(4, 3, 3, 3), "b": normal(3 * attributes.get("group", 1))},
        opset=11,
        **attributes,
    )
    made = only(imported(model).model, "ConvTranspose")
    assert "output_shape" not in made.attributes and "auto_pad" not in made.attributes


def test_dropout_disappears_and_a_used_mask_is_all_true():
    model = make_model(
        [node("Dropout", "x", "d m"), node("Not", "m", "n"), node("Relu", "d", "y")],
        {"x": (2, 3)},
        ["y", "n"],
        opset=12,
        types={"n": TensorProto.BOOL},
    )
    result = imported(model).model
    assert "Dropout" not in ops(result) and ops(result).count("Relu") == 1


@pytest.mark.parametrize("kind", ["Sum", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_variadic_operators_become_binary(kind, count):
    names = ["x", "b", "c"][:count]
    model = make_model(
        [node("Relu", "x", "r"), node(kind, " ".join(names), "s"), node("Mul", "r s", "y")],
        {"x": (2, 3), "b": (1, 3), "c": (2, 1)},
        ["y"],
        opset=9,
    )
    assert all(len(n.inputs) <= 2 for n in imported(model).model.graph)


def test_group_normalization_of_opset_18_has_a_scale_per_group():
    proto = make_proto(
        [node("GroupNormalization", "x s b", "y", num_groups=2)],
        {"x": (1, 4, 3, 3)},
        ["y"],
        {"s": normal(2), "b": normal(2, seed=1)},
        opset=18,
    )
    result = import_model(ir.serde.deserialize_model(proto)).model
    feeds = random_feeds(result)
    expected = ReferenceEvaluator(proto).run(None, feeds)[0]
    np.testing.assert_allclose(run_model(result, feeds)["y"], expected, atol=1e-5)


def test_scatter_and_swish_and_layer_norm_axis():
    constants = {"i": np.zeros((1, 3), np.int64), "u": normal(1, 3)}
    assert ops(
        imported(one("Scatter", "x i u", shape=(2, 3), constants=constants, opset=9)).model
    ) == ["ScatterElements"]
    result = imported(one("LayerNormalization", "x s", constants={"s": normal(5)}, opset=17)).model
    assert attribute(only(result, "LayerNormalization"), "axis") == 3
    swish = import_model(one("Swish", "x", opset=24, alpha=1.0)).model
    assert ops(swish) == ["Sigmoid", "Mul"] and swish.opset_imports[""] == 21


def test_reshape_of_a_wrong_size_names_the_node():
    with pytest.raises(ModelError, match="cannot reshape"):
        import_model(one("Reshape", "x s", constants={"s": int64(7, -1)}, opset=13))


def test_conv_with_wrong_channels_names_the_node():
    with pytest.raises(ModelError, match="takes 4 channels"):
        import_model(one("Conv", "x w", constants={"w": normal(2, 4, 1, 1)}))


def test_space_to_depth_with_depth_first_becomes_a_transpose():
    """The mode is an attribute from opset 27 on; onnxruntime's reference has none, so by hand."""
    model = one("SpaceToDepth", "x", shape=(1, 2, 4, 6), blocksize=2, mode="CRD")
    result = import_model(model).model
    assert ops(result) == ["Reshape", "Transpose", "Reshape"]
    x = np.arange(48, dtype=np.float32).reshape(1, 2, 4, 6)
    found = run_model(result, {"x": x})["y"]
    for depth, row, column in np.ndindex(2, 2, 2):
        channel = (depth * 2 + row) * 2 + column
        np.testing.assert_array_equal(found[0, channel], x[0, depth, row::2, column::2])


def test_cast_like_is_a_cast_to_the_type_of_its_second_operand():
    model = make_model(
        [node("CastLike", "x z", "c"), node("CastLike", "k x", "f"), node("Add", "x f", "y")],
        {"x": (2, 3), "z": (1,)},
        ["y", "c"],
        {"k": np.asarray(2, np.int64)},
        opset=19,
        types={"z": TensorProto.INT32, "c": TensorProto.INT32},
    )
    assert ops(imported(model).model) == ["Cast", "Add"]
