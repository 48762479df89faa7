"""Convolution and transposed convolution: patterns, scales, tiles."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from float_models import Weights, lower, parse, refusal, sites_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding
from tilewright.ops import catalog
from tilewright.ops.builder import Builder
from tilewright.ops.clamp import Rescale
from tilewright.ops.conv import Conv
from tilewright.ops.deconv import ConvTranspose
from tilewright.ops.pattern import FloatGraph, QuantizedConstant
from tilewright.ops.product import channel_records, record_bias
from tilewright.ops.reshape import Reshape

U8, S8, S16 = DType.U8, DType.S8, DType.S16


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(0)


W = drawn().normal(0, 1, (4, 3, 3, 3))
BIAS = drawn().normal(0, 1, 4)


def conv(tail):
    """A convolution `c` of `x` and what follows it."""
    head = "c = Conv<pads=[1, 1, 1, 1]>(x, w, b)"
    return f"(float[1,3,6,5] x) => (float[1,4,6,5] y) {{ {head} {tail} }}"


def plain(op, attributes, x, y):
    return f"(float{x} x) => (float{y} y) {{ y = {op}<{attributes}>(x, w, b) }}".replace("(1", "[1")


@pytest.mark.parametrize("x", [U8, S8, S16])
@pytest.mark.parametrize("y", [U8, S8, S16])
@pytest.mark.parametrize(
    "w", [Weights(), Weights(U8, False, 120), Weights(S16), Weights(S8, False)]
)
def test_types(x, y, w):
    model = parse(plain("Conv", "pads=[1,1,1,1]", "[1,3,6,5]", "[1,4,6,5]"), w=W, b=BIAS)
    # Beside a 16-bit output step, half an accumulator step of the bias counts.
    lower(model, {"x": x, "y": y}, w).check(1.0 if y is S16 else 0.51, tiles=w.per_channel)


@st.composite
def convolutions(draw):
    """Attributes, weights and shapes of a Conv or ConvTranspose that fits."""
    groups = draw(st.integers(1, 3))
    width, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel, stride, dilation = (tuple(draw(st.integers(1, n)) for _ in range(2)) for n in (3, 3, 2))
    size = tuple(
        draw(st.integers((k - 1) * d + 1, 9)) for k, d in zip(kernel, dilation, strict=True)
    )
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    batch = draw(st.integers(1, 2))
    return groups, width, per_group, kernel, stride, dilation, size, pads, batch


def listed(values):
    return "[" + ",".join(map(str, values)) + "]"


def attributes_of(groups, kernel, stride, dilation, pads):
    fields = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "pads": pads}
    return ", ".join([f"group={groups}", *(f"{k}={listed(v)}" for k, v in fields.items())])


@given(convolutions(), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_convolutions_of_every_shape(case, seed):
    groups, width, per_group, kernel, stride, dilation, size, pads, batch = case
    rng = np.random.default_rng(seed)
    rows, columns = (
        (n + pads[a] + pads[a + 2] - (k - 1) * d - 1) // s + 1
        for a, (n, k, d, s) in enumerate(zip(size, kernel, dilation, stride, strict=True))
    )
    model = parse(
        plain(
            "Conv",
            attributes_of(groups, kernel, stride, dilation, pads),
            listed([batch, groups * width, *size]),
            listed([batch, groups * per_group, rows, columns]),
        ),
        w=rng.normal(0, 1, (groups * per_group, width, *kernel)),
        b=rng.normal(0, 1, groups * per_group),
    )
    lower(model, {"x": U8, "y": S8}, seed=seed).check(seed=seed)


@given(convolutions(), st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_transposed_convolutions_of_every_shape(case, extra, seed):
    groups, width, per_group, kernel, stride, dilation, size, pads, batch = case
    rng = np.random.default_rng(seed)
    extra = tuple(min(e, n - 1) for e, n in zip(extra, stride, strict=True))
    rows, columns = (
        (n - 1) * s + (k - 1) * d + 1 + e - pads[a] - pads[a + 2]
        for a, (n, k, d, s, e) in enumerate(zip(size, kernel, dilation, stride, extra, strict=True))
    )
    if min(rows, columns) < 1:
        return
    attributes = attributes_of(groups, kernel, stride, dilation, pads)
    model = parse(
        plain(
            "ConvTranspose",
            f"{attributes}, output_padding={listed(extra)}",
            listed([batch, groups * width, *size]),
            listed([batch, groups * per_group, rows, columns]),
        ),
        w=rng.normal(0, 1, (groups * width, per_group, *kernel)),
        b=rng.normal(0, 1, groups * per_group),
    )
    made = lower(model, {"x": U8, "y": S8}, seed=seed).check(seed=seed)
    assert made.operators == [ConvTranspose]


@pytest.mark.parametrize(
    ("op", "weights", "length"), [("Conv", (4, 3, 3), 4), ("ConvTranspose", (3, 4, 3), 15)]
)
def test_one_dimension(op, weights, length):
    text = plain(op, "strides=[2], pads=[1,0]", "[2,3,8]", f"[2,4,{length}]")
    text = text.replace("float[2,4,15]", "float[2,4,16]")
    model = parse(text, w=drawn().normal(0, 1, weights), b=BIAS)
    made = lower(model, {"x": S8, "y": S8}).check()
    assert made.operators == [Reshape, Conv if op == "Conv" else ConvTranspose, Reshape]


def test_clamps_fuse_where_no_scale_stands_between():
    text = conv("r = Relu(c) y = Min(r, top)")
    model = parse(text, w=W, b=BIAS, top=np.full((4, 1, 1), 1.5) + drawn().random((4, 1, 1)))
    made = lower(model, {"x": U8, "y": U8}).check()
    assert made.operators == [Conv]
    assert [n.op_type for n in made.sites[0].nodes] == ["Conv", "Relu", "Min"]
    channels = made.graph.nodes[0].op.channels
    assert (channels["lo"] == made.encodings["y"].zero_point).all()
    assert len(set(channels["hi"])) > 1
    apart = lower(model, {"x": U8, "c": S8, "r": U8, "y": U8}).check(8.0)
    assert apart.operators == [Conv, Rescale, Conv]


def test_a_table_behind_an_s16_pair():
    model = parse(conv("s = Sigmoid(c) y = Mul(c, s)"), w=W, b=BIAS)
    made = lower(model, {"x": U8, "c": S16, "y": U8}).check(0.6)
    assert made.operators == [Conv] and made.sites[0].inner.name == "c"
    assert made.graph.nodes[0].op.table.shape == (513,)
    apart = lower(model, {"x": U8, "c": U8, "y": U8})
    assert apart.sites[0].inner is None and len(apart.operators) == 2


def test_a_function_without_a_16_bit_table_stays_apart():
    model = parse(conv("y = Sqrt(c)"), w=W, b=BIAS)
    sites = sites_of(ir.from_proto(model).graph, None)
    assert [s.kind for s in sites] == ["Conv", "Table"] and sites[0].inner is None


def test_the_site_of_a_float_graph():
    model = parse(conv("y = Relu(c)"), w=W, b=BIAS)
    (site,) = sites_of(ir.from_proto(model).graph, None)
    assert site.macs == 4 * 6 * 5 * 27
    assert (site.weights.value.name, site.weights.axis, site.weights.bias.name) == ("w", 0, "b")


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(0.5, [7, -9]), (0.5 * (1 + 2.0**-21), [7, -9]), (0.75, [10, -14])],
)
def test_an_imported_bias_is_taken_as_it_is_where_its_scale_is_that_of_the_products(
    scale, expected
):
    """Else it is rounded onto that scale: 7 * 1.5 = 10.5 and -9 * 1.5 = -13.5 go to even."""
    text = "(float[1,1,1,1] x) => (float[1,2,1,1] y) { y = Conv(x, w, b) }"
    model = parse(text, w=np.full((2, 1, 1, 1), 127.0), b=[1.0, 1.0])
    codes = np.array([7, -9], np.int32)
    scales, zeros = np.full(2, scale, np.float32), np.zeros(2, np.int64)
    bias = QuantizedConstant(codes, DType.S32, scales, zeros, 0)
    types = {"x": Encoding(S8, 0.5, 3), "y": Encoding(S16, 0.25, 0)}
    made = lower(model, types, biases={"b": bias})
    assert record_bias(made.graph.nodes[0].op.channels).tolist() == expected


def test_a_float_bias_is_rounded():
    text = "(float[1,1,1,1] x) => (float[1,1,1,1] y) { y = Conv(x, w, b) }"
    model = parse(text, w=np.full((1, 1, 1, 1), 127.0), b=[-10.3])
    made = lower(model, {"x": Encoding(S8, 0.5, 3), "y": Encoding(S16, 0.25, 0)})
    assert record_bias(made.graph.nodes[0].op.channels).tolist() == [-21]


def test_a_bias_of_48_bits_survives_its_record():
    bias = np.array([2**46 + 5, -(2**46) - 7, -1, 2**31], np.int64)
    ones = np.ones(4, np.int64)
    assert record_bias(channel_records(bias, ones, ones, ones, ones)).tolist() == bias.tolist()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[1,3,6,5] x, float[4,3,3,3] k) => (float[1,4,4,3] y) { y = Conv(x, k) }",
            "its weights are computed at run time",
        ),
        (
            "(float[1,3,6,5] x, float[4] k) => (float[1,4,4,3] y) { y = Conv(x, w, k) }",
            "its bias is computed at run time",
        ),
        (
            "(float[1,3,6,5] x, float[3,4,3,3] k) => (float[1,4,8,7] y){ y = ConvTranspose(x, k) }",
            "its weights are computed at run time",
        ),
        (
            "(float[1,3,4,4,4] x) => (float[1,2,4,4,4] y) { y = Conv(x, v) }",
            "it is a 3-D convolution; 1-D and 2-D are supported",
        ),
    ],
)
def test_refusals(text, reason):
    assert refusal(text, w=W, v=drawn().normal(0, 1, (2, 3, 1, 1, 1))) == reason


@pytest.mark.parametrize(
    "w", [Weights(), Weights(S8, False), Weights(U8, False, 120), Weights(S16)]
)
@pytest.mark.parametrize(
    "text",
    [
        plain("Conv", "group=2", "[1,6,4,5]", "[1,4,2,3]"),
        plain("Conv", "pads=[1,1]", "[1,3,6]", "[1,4,6]"),
        plain("ConvTranspose", "group=2", "[1,4,3,4]", "[1,6,5,6]"),
    ],
)
def test_a_bias_that_the_accumulator_cannot_hold_makes_weights_coarser(text, w):
    """Channel 1 is nearly dead; beside its bias nothing of its weights shows in the output."""
    transposed, flat = "ConvTranspose" in text, "[1,3,6]" in text
    array = W[..., 0].copy() if flat else W.copy()
    array[(slice(None), 1) if transposed else 1] *= 1e-4
    bias = np.array([0.3, 6, -0.2, 0.1, -6, 0.2] if transposed else [0.3, 6, -0.2, 0.1])
    x = Encoding(S8, 1e-9, 0)
    shape = [1, 6, 4, 5] if "[1,6,4,5]" in text else [1, 4, 3, 4] if transposed else [1, 3, 6]
    samples = {"x": drawn().normal(0, 5e-8, shape)}
    made = lower(parse(text, w=array, b=bias), {"x": x, "y": S8}, w, inputs=samples)
    made.check(0.51, tiles=False)
    (note,) = made.notes
    assert note.code == "raised-weight-scales" and "output channels were raised" in note.text


def test_an_accumulator_that_cannot_be_proven_is_an_error():
    x = Encoding(S8, 1e-38, 0)
    with pytest.raises(QuantizationError, match="can reach"):
        lower(parse(conv("y = Relu(c)"), w=W, b=np.full(4, 1e38)), {"x": x, "y": S8})


def test_channels_of_zeros_take_the_zero_point_of_the_others():
    """As onnxruntime's per-channel u8 weights have it."""
    model = parse(plain("Conv", "pads=[1,1,1,1]", "[1,3,6,5]", "[1,4,6,5]"), w=W, b=BIAS)
    codes = drawn().integers(1, 256, W.shape).astype(np.uint8)
    codes[2] = 0
    zero = np.array([128, 128, 0, 128])
    found = QuantizedConstant(codes, U8, np.full(4, 0.01, np.float32), zero, 0)
    same = lower_with(model, found)
    codes[2] = 128
    other = QuantizedConstant(codes, U8, found.scale, np.full(4, 128), 0)
    assert np.array_equal(same.weight, lower_with(model, other).weight)
    apart = QuantizedConstant(codes, U8, found.scale, np.array([128, 128, 128, 1]), 0)
    with pytest.raises(QuantizationError, match="a zero point for each channel"):
        lower_with(model, apart)


def lower_with(model, weight):
    """The operator that a Conv with these weights becomes."""
    graph = ir.from_proto(model).graph
    encodings = {"x": Encoding(U8, 0.1, 3), "y": Encoding(U8, 0.1, 3)}
    builder = Builder(FloatGraph(graph, encodings, {"w": weight}))
    builder.add_input(graph.inputs[0])
    (site,) = sites_of(graph, encodings)
    builder.begin(site)
    catalog.bind(site, builder)
    return builder.nodes[0].op
