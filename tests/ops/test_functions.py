"""Functions of one variable: patterns, tables of both widths, PRelu."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
from float_models import lower, parse, refusal, sites_of

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import catalog, functions
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule
from tilewright.ops.prelu import ParametricRelu
from tilewright.ops.table import Table, Table16
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(3)


def model(body, shape="2,3,4,5", **constants):
    return parse(f"(float[{shape}] x) => (float[{shape}] y) {{ {body} }}", **constants)


DOMAINS = {
    "Sqrt": (0.1, 4), "Log": (0.1, 4), "Reciprocal": (0.3, 4), "Asin": (-1, 1), "Acos": (-1, 1),
    "Acosh": (1.1, 4), "Atanh": (-0.9, 0.9), "Tan": (-1.2, 1.2),
}  # fmt: skip
JUMPS = ("Sign", "Floor", "Ceil", "Round")
SPELLED = {
    "LeakyRelu": "y = LeakyRelu<alpha=0.2>(x)",
    "LeakyRelu default": "y = LeakyRelu(x)",
    "HardSigmoid": "y = HardSigmoid<alpha=0.3, beta=0.4>(x)",
    "Elu": "y = Elu<alpha=0.7>(x)",
    "Selu": "y = Selu(x)",
    "Celu": "y = Celu<alpha=2.0>(x)",
    "ThresholdedRelu": "y = ThresholdedRelu<alpha=0.5>(x)",
    "Shrink": "y = Shrink<bias=0.25, lambd=0.5>(x)",
    "Gelu": "y = Gelu(x)",
    "Gelu tanh": 'y = Gelu<approximate="tanh">(x)',
    "SiLU": "s = Sigmoid(x) y = Mul(x, s)",
    "HardSwish": "s = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(s, x)",
}


@pytest.mark.parametrize("body", [*(f"y = {n}(x)" for n in functions.PLAIN), *SPELLED.values()])
@pytest.mark.parametrize("y", [U8, S16])
def test_functions_of_bytes_are_rounded_once(body, y):
    name = body.split("= ")[1].split("(")[0]
    low, high = DOMAINS.get(name, (-2.9, 3.1))
    samples = {"x": drawn().uniform(low, high, (2, 3, 4, 5))}
    made = lower(model(body), {"x": S8, "y": y}, inputs=samples)
    # onnxruntime's float32 results are up to 1e-6 away: a hundredth of a 16-bit step, unless the
    # function jumps.
    made.check(0.6)
    assert made.operators == [Table] and len(made.sites) == 1


SMOOTH = (
    "Sigmoid", "Tanh", "HardSwish", "Softplus", "Softsign", "Mish", "Exp", "Erf", "Abs", "Neg",
    "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh",
)  # fmt: skip
SMOOTH_BODIES = [*(f"y = {n}(x)" for n in SMOOTH), SPELLED["SiLU"], SPELLED["Gelu"]]


@pytest.mark.parametrize("body", SMOOTH_BODIES)
@pytest.mark.parametrize("y", [U8, S16])
def test_functions_of_16_bits_interpolate(body, y):
    samples = {"x": drawn().uniform(-2, 2, (2, 3, 4, 5))}
    # Room for every input code: a piece of the table that saturates would be further off.
    encoding = Encoding(S16, 8 / 32767, 0) if y is S16 else y
    made = lower(model(body), {"x": S16, "y": encoding}, inputs=samples)
    made.check(2.0 if y is S16 else 0.6)
    assert made.operators == [Table16]


def test_pieces_that_saturate_do_not_refuse_a_table():
    """exp(x) leaves the output's range inside a piece: the range is at fault, not the table."""
    x, y = Encoding(S16, 2 / 32767, 0), Encoding(S16, 5 / 32767, 0)
    lower(model("y = Exp(x)"), {"x": x, "y": y}).check(64.0)


def test_clamps_are_part_of_the_table():
    for x, op in ((S8, Table), (S16, Table16)):
        made = lower(
            model("t = Sin(x) y = Clip(t, low, high)", low=-0.25, high=0.5), {"x": x, "y": S8}
        )
        assert made.check(0.6).operators == [op]


@pytest.mark.parametrize("name", sorted(functions.NOT_AT_16_BITS))
def test_functions_that_no_16_bit_table_follows(name):
    body = SPELLED.get(name, f"y = {name}(x)") if name != "Pow" else "y = Pow(x, e)"
    made = model(body, e=2.0)
    graph = ir.from_proto(made).graph
    encodings = {"x": Encoding(S16, 1e-3, 0), "y": Encoding(S16, 1e-3, 0)}
    found = catalog.match(graph[0], FloatGraph(graph, encodings))
    assert isinstance(found, Refusal) and "16 bits" in found.reason
    (site,) = sites_of(graph, None)
    builder = Builder(FloatGraph(graph, encodings))
    builder.add_input(graph.inputs[0])
    with pytest.raises(QuantizationError, match="no 16-bit form"):
        catalog.bind(site, builder)


def test_a_16_bit_table_that_is_too_coarse_is_an_error():
    """A sigmoid over +-60 turns within two entries."""
    x, y = Encoding(S16, 60 / 32767, 0), Encoding(S16, 2.0**-15, 0)
    with pytest.raises(QuantizationError, match="steps off at worst, 2 are allowed"):
        lower(model("y = Sigmoid(x)"), {"x": x, "y": y})
    assert lower(model("y = Sigmoid(x)"), {"x": x, "y": Encoding(U8, 1 / 256, 0)})


@pytest.mark.parametrize(
    ("name", "limits"), [("Sigmoid", (0, 1)), ("HardSigmoid", (0, 1)), ("Tanh", (-1, 1))]
)
def test_bounded_functions_fix_their_range(name, limits):
    (site,) = sites_of(ir.from_proto(model(f"y = {name}(x)")).graph, None)
    assert (site.rule, site.fixed) == (ScaleRule.FIXED, limits)
    (site,) = sites_of(ir.from_proto(model("y = Exp(x)")).graph, None)
    assert (site.rule, site.fixed) == (ScaleRule.FREE, None)


def test_a_gate_with_a_scale_of_its_own_is_not_silu():
    made = lower(model(SPELLED["SiLU"]), {"x": S8, "s": U8, "y": S8})
    assert [s.kind for s in made.sites] == ["Table", "Mul"]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 1.7])
def test_powers(exponent):
    low = -2 if exponent in (0, 1, 2, 3) else 0.3
    samples = {"x": drawn().uniform(low, 3, (2, 3, 4, 5))}
    # The zero point of an unsigned input below its smallest sample stands for zero.
    lower(model("y = Pow(x, e)", e=exponent), {"x": S8, "y": S16}, inputs=samples).check(0.7)


def test_powers_outside_their_domain_and_range():
    root, inverse = functions._power(0.5), functions._power(-2.0)
    assert root(-1.0) == 0 and functions._power(-0.5)(-1.0) == math.inf
    assert inverse(0.0) == math.inf and inverse(-2.0) == 0.25
    assert functions._power(3.0)(1e200) == math.inf
    assert functions._power(3.0)(-1e200) == -math.inf


def test_functions_take_the_nearest_point_of_their_domain():
    for name, x, y in [
        ("Sqrt", -1, 0), ("Log", -1, -math.inf), ("Asin", 3, math.pi / 2), ("Acos", 3, 0),
        ("Acosh", 0, 0), ("Atanh", -2, -math.inf), ("Reciprocal", 0, math.inf),
    ]:  # fmt: skip
        assert functions.PLAIN[name](x) == y


def test_every_function_is_finite_or_infinite_over_any_range():
    for name, f in functions.PLAIN.items():
        for x in (-1e30, -800.0, -1.0, 0.0, 1.0, 800.0, 1e30):
            assert not math.isnan(f(x)), (name, x)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Pow(x, x)", "its exponent is computed at run time"),
        ("y = PRelu(x, x)", "its slope is computed at run time"),
        ("y = PRelu(x, s)", "its slope differs along more than one axis"),
        ("y = Cumulate(x)", "no NPU lowering for Cumulate (ai.onnx)"),
    ],
)
def test_refusals(body, reason):
    text = f"(float[2,3] x) => (float[2,3] y) {{ {body} }}"
    if "Cumulate" in body:
        value = ir.Value(name="v", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
        node = ir.Node("", "Cumulate", [value], num_outputs=1)
        graph = ir.Graph([value], node.outputs, nodes=[node], name="g")
        assert catalog.match(node, FloatGraph(graph)) == Refusal(reason)
        return
    assert refusal(text, s=np.ones((2, 3))) == reason


@pytest.mark.parametrize("types", [(U8, S8), (S8, U8), (S16, S16), (S8, S16), (S16, S8)])
@pytest.mark.parametrize("slope", ["", "1", "3,1,1", "5", "2,1,1,1"])
def test_prelu(types, slope):
    shape = tuple(map(int, slope.split(","))) if slope else ()
    slopes = np.asarray(drawn().uniform(-0.5, 0.5, shape))
    made = lower(model("y = PRelu(x, s)", s=slopes), dict(zip("xy", types, strict=True)))
    made.check(0.52)
    assert {*made.operators} <= {ParametricRelu, Transpose}
    if shape in ((), (1,), (3, 1, 1)):
        assert made.operators == [ParametricRelu]


def test_prelu_of_zero_slope_and_a_clamp():
    body = "p = PRelu(x, s) y = Clip(p, low, high)"
    slopes = np.zeros((3, 1, 1))
    made = lower(model(body, s=slopes, low=0.0, high=1.0), {"x": S8, "y": U8})
    assert made.check().operators == [ParametricRelu]


def test_leaky_relu_of_16_bits_needs_no_table():
    made = lower(model(SPELLED["LeakyRelu"]), {"x": S16, "y": S16}).check(0.52)
    assert made.operators == [ParametricRelu]


def test_types_that_do_not_fit():
    x = TensorType(S16, (2, 3), 1.0, 0)
    with pytest.raises(QuantizationError, match="8-bit codes"):
        Table(np.zeros(256, np.int8)).infer([x], "op")
    with pytest.raises(QuantizationError, match="16-bit codes"):
        Table16(1, 2, 0, 0, np.zeros(513, np.int16)).infer([TensorType(S8, (2,), 1.0, 0)], "op")
    with pytest.raises(QuantizationError, match="slopes"):
        ParametricRelu(1, 2, 0, 0, np.zeros(2)).infer([x], "op")
