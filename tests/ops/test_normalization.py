"""LayerNorm, RmsNorm, GroupNorm and L2Norm: from ONNX to codes, and what is refused."""

from __future__ import annotations

import itertools

import node_harness
import numpy as np
import onnx_ir as ir
import pytest
from float_models import lower, parse, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import catalog, layer_norm
from tilewright.ops.group_norm import GroupNorm
from tilewright.ops.l2_norm import L2Norm
from tilewright.ops.layer_norm import LayerNorm
from tilewright.ops.normalization import affine_records
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule
from tilewright.ops.rms_norm import RmsNorm
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16
STEPS = 0.52
WIDE_STEPS = 0.8
"""Half an output step and what the Q16 quotient, times the gain, rounds away, seen at 16 bits."""

SHAPE = "2,3,4,5"
TYPES = [(U8, U8), (S8, S16), (S16, U8), (S16, S16)]


def drawn(*shape, seed=7):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, shape) + 0.3


def model(body, shape=SHAPE, **constants):
    return parse(f"(float[{shape}] x) => (float[{shape}] y) {{ {body} }}", **constants)


def checked(net, types, **options):
    return lower(net, types, **options).check(WIDE_STEPS if types["y"] is S16 else STEPS)


def computing(made):
    return [o for o in made.operators if o is not Transpose]


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("types", TYPES)
def test_layer_normalization(axis, types):
    shape = (2, 3, 4, 5)[axis:]
    body = f"y = LayerNormalization<axis={axis}, epsilon=0.01>(x, g, b)"
    constants = {"g": drawn(*shape), "b": drawn(*shape, seed=8)}
    made = checked(model(body, **constants), dict(zip("xy", types, strict=True)))
    assert computing(made) == [LayerNorm]
    assert made.sites[0].rule is ScaleRule.FREE


@pytest.mark.parametrize("shape", [(5,), (1, 4, 1), (4, 5), (1, 1, 1, 4, 5), ()])
def test_scales_that_broadcast(shape):
    """onnxruntime takes scales of the full shape only."""
    full = np.broadcast_to(drawn(*shape).reshape(shape[-2:]), (4, 5))
    body = "y = LayerNormalization<axis=2>(x, g)"
    wide = checked(model(body, g=full), {"x": S8, "y": S16})
    narrow = ir.from_proto(model(body, g=drawn(*shape))).graph
    site = catalog.match(narrow[0], FloatGraph(narrow))
    np.testing.assert_array_equal(
        site.pattern.end.gamma, full.astype(np.float32).astype(np.float64)
    )
    assert len(wide.graph.nodes[-1].op.gains) == 20


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_layers_in_any_stored_order(order):
    """The axes are moved only where something stands between them."""
    net = model("y = LayerNormalization<axis=2>(x, g, b)", g=drawn(4, 5), b=drawn(4, 5, seed=1))
    encodings = {"x": Encoding(S8, 0.03, 4), "y": Encoding(S8, 0.03, 4)}
    rng = np.random.default_rng(0)
    graph = node_harness.compare(layer_norm, net, encodings, rng, {"x": order}, steps=STEPS)
    assert [type(n.op) for n in graph.nodes][-1] is LayerNorm
    if order[2:] in ((2, 3), (3, 2)):
        assert sum(isinstance(n.op, Transpose) for n in graph.nodes) <= 1


def test_channels_last_needs_no_transpose():
    body = "t = Transpose<perm=[0,2,3,1]>(x) y = LayerNormalization<axis=-1>(t, g)"
    net = parse(f"(float[1,6,3,4] x) => (float[1,3,4,6] y) {{ {body} }}", g=drawn(6))
    assert lower(net, {"x": S8, "t": S8, "y": S8}).check(STEPS).operators == [LayerNorm]


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("types", TYPES)
def test_rms_normalization(axis, types):
    shape = (2, 3, 4, 5)[axis:]
    net = model(f"y = RMSNormalization<axis={axis}>(x, g)", g=drawn(*shape))
    net.opset_import[0].version = 23
    made = checked(net, dict(zip("xy", types, strict=True)))
    assert computing(made) == [RmsNorm]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("types", TYPES)
def test_l2_normalization(axis, types):
    made = checked(
        model(f"y = LpNormalization<axis={axis}>(x)"), dict(zip("xy", types, strict=True))
    )
    assert computing(made) == [L2Norm]
    assert len(made.graph.nodes[-1].op.gains) == 1


def test_a_vector_of_zeros_stays_zero():
    x = drawn(3, 8)
    x[1] = 0
    made = lower(model("y = LpNormalization(x)", "3,8"), {"x": S8, "y": U8}, inputs={"x": x})
    made.check(STEPS)
    codes = node_harness.run(made.graph, made.feeds)["y"]
    assert (codes[1] == made.encodings["y"].zero_point).all()


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("places", ["4,5", "7", "2,3,2"])
@pytest.mark.parametrize("types", TYPES)
def test_group_normalization(groups, places, types):
    net = model(
        f"y = GroupNormalization<num_groups={groups}>(x, g, b)", f"2,6,{places}",
        g=drawn(6), b=drawn(6, seed=3),
    )  # fmt: skip
    made = checked(net, dict(zip("xy", types, strict=True)))
    assert made.operators == [GroupNorm]


@pytest.mark.parametrize("places", ["4,5", "7", "1,1"])
@pytest.mark.parametrize("x", [U8, S16])
def test_instance_normalization(places, x):
    net = model(
        "y = InstanceNormalization(x, g, b)", f"2,3,{places}", g=drawn(3), b=drawn(3, seed=3)
    )
    made = lower(net, {"x": x, "y": U8}).check(STEPS)
    assert made.operators == [GroupNorm] and made.graph.nodes[0].op.groups == 3


@pytest.mark.parametrize(
    "norm",
    [
        "LayerNormalization(x, g)",
        "InstanceNormalization(x, k, k)",
        "LpNormalization(x)",
    ],
)
def test_clamps_fuse(norm):
    made = lower(model(f"n = {norm} y = Relu(n)", g=drawn(5), k=drawn(3)), {"x": S8, "y": S8})
    made.check(STEPS)
    assert len(computing(made)) == 1 and len(made.sites[0].nodes) == 2
    assert made.graph.nodes[-1].op.clamp[0] == made.encodings["y"].zero_point


@pytest.mark.parametrize("types", TYPES)
def test_random_data_keeps_its_signal(types):
    """Quantizing the output alone costs no less."""
    x = drawn(50, 96) * 2
    net = model("y = LayerNormalization(x, g, b)", "50,96", g=drawn(96), b=drawn(96, seed=2))
    made = checked(net, dict(zip("xy", types, strict=True)), inputs={"x": x})
    encoding = made.encodings["y"]
    codes = node_harness.run(made.graph, made.feeds)["y"]
    real = made.reals["y"].astype(np.float64)
    noise = numerics.dequantize(codes, encoding.scale, encoding.zero_point) - real
    ratio = 10 * np.log10((real**2).sum() / (noise**2).sum())
    ideal = 10 * np.log10((real**2).mean() / (encoding.scale**2 / 12))
    assert ratio > ideal - 0.2


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    types=st.tuples(st.sampled_from([U8, S8, S16]), st.sampled_from([U8, S8, S16])),
    count=st.integers(1, 40),
    epsilon=st.sampled_from([0.0, 1e-12, 1e-5, 0.1]),
)
@pytest.mark.parametrize("kind", ["layer", "rms", "l2"])
def test_codes_are_within_a_step_of_the_formula(kind, data, types, count, epsilon):
    operator = {"layer": LayerNorm, "rms": RmsNorm, "l2": L2Norm}[kind]
    lo, hi = types[0].range
    zero = 0 if types[0] is S16 else data.draw(st.integers(lo, hi))
    sx = numerics.f32(2.0 ** data.draw(st.floats(-14, 0)))
    rows = data.draw(st.lists(st.integers(lo, hi), min_size=count, max_size=count))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    gamma, beta = rng.normal(0, 2, (2, count))
    if kind == "l2":
        gamma, beta, epsilon = np.ones(1), np.zeros(1), 0.0
    added = numerics.norm_epsilon(epsilon, operator.unit(count), sx)
    # An integer: it differs from epsilon where the sum of squares is a few units.
    epsilon = added * sx**2 / operator.unit(count) ** 2
    real = sx * (np.array(rows, np.float64) - zero)
    if kind == "layer":
        real -= real.mean()
    power = (real**2).sum() if kind == "l2" else (real**2).mean() + epsilon
    real = (real / np.sqrt(power) if power > 0 else 0 * real) * gamma + beta
    sy = numerics.f32(max(np.abs(real).max(), 1e-3) / types[1].range.hi)
    end = numerics.norm_affine(gamma, beta, sy, operator.BITS, "op")
    op = operator(
        epsilon=added, shift=end.shift, clamp=types[1].range,
        gains=affine_records(end.gain, end.offset), axis=1,
    )  # fmt: skip
    x = TensorType(types[0], (1, count), sx, zero)
    y = TensorType(types[1], (1, count), sy, 0)
    (codes,) = op.reference([np.array([rows], x.dtype.numpy)], [x], [y])
    ideal = np.clip(real / sy, *types[1].range)
    # n is rounded to a part of 2**-16 (2**-24), which the gain multiplies.
    steps = 0.51 + float(np.abs(gamma).max()) / sy / 2.0 ** (operator.BITS + 1)
    # Of a constant row exact arithmetic leaves nothing, floats a little: epsilon' decides.
    if kind == "layer" and len(set(rows)) == 1:
        ideal = np.clip(beta / sy, *types[1].range)
    assert np.abs(codes[0] - ideal).max() <= steps


LONG = "2,60000"


def test_what_cannot_be_proven_is_refused():
    graph = ir.from_proto(model("y = LayerNormalization(x, g)", LONG, g=[1.0])).graph
    narrow = FloatGraph(graph, {"x": Encoding(S8, 1.0, 0)})
    wide = FloatGraph(graph, {"x": Encoding(S16, 1.0, 0)})
    assert not isinstance(catalog.match(graph[0], narrow), Refusal)
    assert catalog.match(graph[0], wide) == Refusal(
        "it normalises 60000 values at once; at 16 bits up to 56757 are supported"
    )
    body = "y = InstanceNormalization(x, k, k)"
    assert "at 8 bits up to 7293236" in refusal(
        f"(float[1,1,7293237] x) => (float[1,1,7293237] y) {{ {body} }}", k=[1.0]
    )


@pytest.mark.parametrize("encoding", [Encoding(S16, 1.0, 0), Encoding(U8, 1.0, 0)])
def test_the_limit_has_a_proof_and_no_more(encoding):
    limit = 56757 if encoding.dtype is S16 else 7293236
    fields = {"shift": 1, "clamp": (0, 1), "gains": affine_records(np.ones(1), np.zeros(1))}
    x = TensorType(encoding.dtype, (limit,), encoding.scale, encoding.zero_point)
    LayerNorm(epsilon=2**60, axis=0, **fields).infer([x], "op")
    longer = TensorType(encoding.dtype, (limit * 2,), encoding.scale, encoding.zero_point)
    with pytest.raises(QuantizationError, match=r"op: .* too many to normalise at once"):
        LayerNorm(epsilon=0, axis=0, **fields).infer([longer], "op")
    L2Norm(epsilon=0, axis=0, **fields).infer([longer], "op")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[2,5] x, float[5] k) => (float[2,5] y) { y = LayerNormalization(x, k) }",
            "its scale is computed at run time",
        ),
        (
            "(float[2,5] x, float[5] k) => (float[2,5] y) { y = LayerNormalization(x, g, k) }",
            "its bias is computed at run time",
        ),
        (
            "(float[2,5] x) => (float[2,5] y, float[2,1] m) { y, m = LayerNormalization(x, g) }",
            "its mean or inverse deviation is read",
        ),
        (
            "(float[2,5] x) => (float[2,5] y) { y = LpNormalization<p=1>(x) }",
            "it has p = 1; only p = 2 is supported",
        ),
        (
            "(float[2,5] x) => (float[2,5] y) { y = LayerNormalization(x, w) }",
            "its scale of shape (2, 5) does not fit (5,)",
        ),
    ],
)
def test_refusals(text, reason):
    assert refusal(text, g=drawn(5), w=drawn(2, 5)) == reason


def test_gains_that_do_not_fit():
    fields = {"epsilon": 0, "shift": 1, "clamp": (0, 1)}
    gains = affine_records(np.ones(4), np.zeros(4))
    x = TensorType(U8, (2, 3, 6), 1.0, 0)
    with pytest.raises(QuantizationError, match="4 gains do not fit 6 values"):
        LayerNorm(axis=2, gains=gains, **fields).infer([x], "op")
    with pytest.raises(QuantizationError, match="4 groups and 4 gains do not fit"):
        GroupNorm(groups=4, gains=gains, **fields).infer([x], "op")
