"""Clamps of their own, BatchNormalization, Softmax and constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from float_models import lower, parse, refusal

from tilewright import graph as graphs
from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import catalog, constant
from tilewright.ops.builder import Builder
from tilewright.ops.clamp import Rescale
from tilewright.ops.constant import Constant
from tilewright.ops.conv import Conv
from tilewright.ops.pattern import FloatGraph, ScaleRule
from tilewright.ops.reshape import Reshape
from tilewright.ops.softmax import LONGEST, Softmax
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(4)


def model(body, shape="2,3,4,5", **constants):
    return parse(f"(float[{shape}] x) => (float[{shape}] y) {{ {body} }}", **constants)


CLAMPS = [
    "Relu(x)",
    "Clip(x, a, b)",
    "Clip(x, , b)",
    "Clip(x, a)",
    "Min(x, b)",
    "Max(a, x)",
    "Clip(x)",
]


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("types", [(U8, U8), (S8, U8), (S16, S8), (S8, S16)])
def test_clamps(clamp, types):
    made = lower(model(f"y = {clamp}", a=-0.3, b=0.8), dict(zip("xy", types, strict=True)))
    assert made.check(0.51).operators == [Rescale]


def test_clamps_join():
    made = lower(model("r = Relu(x) y = Min(r, b)", b=0.8), {"x": S8, "y": U8}).check()
    assert made.operators == [Rescale] and len(made.sites[0].nodes) == 2
    bounds = made.graph.nodes[0].op
    assert bounds.lo == made.encodings["y"].zero_point


@pytest.mark.parametrize("shape", ["3,1,1", "5", "4,1", "1,3,1,1"])
@pytest.mark.parametrize("x", [U8, S16])
def test_a_vector_of_bounds_is_a_convolution_by_one(shape, x):
    bounds = drawn().uniform(0.2, 1.5, tuple(map(int, shape.split(","))))
    made = lower(model("r = Relu(x) y = Min(r, b)", b=bounds), {"x": x, "r": x, "y": U8}).check(1.5)
    assert [o for o in made.operators if o not in (Transpose, Reshape)] == [Rescale, Conv]
    made = lower(model("m = Min(x, b) y = Relu(m)", b=bounds), {"x": x, "y": U8}).check(0.51)
    assert Rescale not in made.operators


@pytest.mark.parametrize("shape", ["2,3", "2,3,4", "2,3,2,2,2"])
def test_bounds_of_any_rank(shape):
    bounds = drawn().uniform(0.2, 1.5, (3,) + (1,) * (shape.count(",") - 1))
    lower(model("y = Max(x, b)", shape, b=bounds), {"x": S8, "y": S8}).check()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Min(x, z) }",
            "more than one of its operands is computed at run time",
        ),
        (
            "(float[2,3] x) => (float[2,3] y) { y = Min(x, b) }",
            "its bounds differ along more than one axis",
        ),
        ("(float[3] x) => (float[2,3] y) { y = Min(x, b) }", "its bound broadcasts its input"),
        (
            "(float[2,3] x, float[3] k) => (float[2,3] y){ y = BatchNormalization(x, k, k, k, k) }",
            "its statistics are computed at run time",
        ),
    ],
)
def test_refusals(text, reason):
    assert refusal(text, b=np.ones((2, 3))) == reason


def test_a_bound_that_broadcasts_does_not_fuse():
    text = "(float[3] x) => (float[2,3] y) { s = Add(x, c) y = Min(s, b) }"
    graph = ir.from_proto(parse(text, c=np.ones(3), b=np.ones((2, 1)))).graph
    assert len(catalog.match(graph[0], FloatGraph(graph)).nodes) == 1


@pytest.mark.parametrize("shape", ["2,3", "2,3,4", "2,3,4,5"])
@pytest.mark.parametrize("tail", ["y = Identity(n)", "y = Relu(n)", "y = Tanh(n)"])
@pytest.mark.parametrize("x", [U8, S16])
def test_batch_normalization(shape, tail, x):
    statistics = {
        "g": drawn().uniform(-2, 2, 3), "b": drawn().normal(0, 1, 3), "m": drawn().normal(0, 1, 3),
        "v": drawn().uniform(0.1, 2, 3),
    }  # fmt: skip
    types = {"x": x, "y": S8}
    if "Identity" in tail:
        tail = ""
    if "Tanh" in tail:
        types["n"] = S16
    name = "n" if tail else "y"
    body = f"{name} = BatchNormalization<epsilon=0.01>(x, g, b, m, v) {tail}"
    made = lower(model(body, shape, **statistics), types).check(0.6)
    assert [o for o in made.operators if o is not Reshape] == [Conv]
    conv = next(n.op for n in made.graph.nodes if isinstance(n.op, Conv))
    assert (np.abs(conv.weight) == 127).all() and conv.groups == 3
    assert made.sites[0].inner is None or made.sites[0].inner.name == "n"


def test_batch_normalization_of_a_dead_channel():
    made = lower(
        model("y = BatchNormalization(x, g, b, m, v)", g=[0.0, 1, 0], b=[2.0, 0, 0], m=[0.0, 0, 0],
              v=[1.0, 1, 1]),
        {"x": S8, "y": S8},
    )  # fmt: skip
    assert made.check().operators == [Conv]


SOFTMAX = {
    U8: Encoding(U8, 1 / 256, 0),
    S8: Encoding(S8, 1 / 256, -128),
    S16: Encoding(S16, 2.0**-15, 0),
}


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("types", [(U8, U8), (S8, S8), (S16, S16), (S8, S16)])
def test_softmax(axis, types):
    y = SOFTMAX[types[1]]
    made = lower(model(f"y = Softmax<axis={axis}>(x)"), {"x": types[0], "y": y}).check(0.53)
    assert made.operators[-1] is Softmax
    (site,) = made.sites
    assert (site.rule, site.fixed) == (ScaleRule.FIXED, (0.0, 1.0))


def test_softmax_over_channels_needs_no_transpose():
    y = Encoding(U8, 1 / 256, 0)
    assert lower(model("y = Softmax<axis=1>(x)"), {"x": S8, "y": y}).operators == [Softmax]
    made = lower(model("y = Softmax(x)", "7"), {"x": S8, "y": y}).check()
    assert made.operators == [Softmax]


def test_softmax_that_is_too_long():
    long = f"float[{LONGEST + 1}]"
    assert "elements" in refusal(f"({long} x) => ({long} y) {{ y = Softmax(x) }}")
    with pytest.raises(QuantizationError):
        Softmax(1, 2, 1, 2).infer([TensorType(S8, (LONGEST + 1,), 1.0, 0)], "op")


@pytest.mark.parametrize("dtype", [U8, S8, S16])
def test_constants_as_tensors(dtype):
    graph = ir.from_proto(model("y = Relu(x)", c=drawn().normal(0, 1, (2, 3)))).graph
    builder = Builder(FloatGraph(graph, {}))
    encoding = Encoding(dtype, 0.01, 0 if dtype is S16 else 17)
    made = constant.operand(builder, graph.initializers["c"], encoding)
    op = builder.nodes[0].op
    assert isinstance(op, Constant) and made.permutation == (0, 1)
    (codes,) = op.reference([], [], [made.type])
    real = graph.initializers["c"].const_value.numpy()
    lo, hi = dtype.range
    ideal = np.clip(real / 0.01 + encoding.zero_point, lo, hi)
    assert np.abs(codes - ideal).max() <= 0.5001
    assert graphs.Graph("g", builder.tensors, tuple(builder.nodes), (), ())
