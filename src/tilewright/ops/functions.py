"""Functions of one variable that become tables, and their patterns in ONNX.

A function is a scalar Python callable: tables are built with `math`, so they are the same on every
processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding
from tilewright.numerics import ScalarFunction
from tilewright.ops.pattern import FloatGraph, attribute_float, attribute_string

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Unary:
    """A function applied to `input`: the nodes that spell it and the value it makes.

    Args:
        limits: the real range that the outputs span, when the function bounds it on both sides.
    """

    name: str
    function: ScalarFunction
    nodes: tuple[ir.Node, ...]
    input: ir.Value
    output: ir.Value
    limits: tuple[float, float] | None = None


def sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x)) if x < 700 else 1.0
    e = math.exp(x) if x > -700 else 0.0
    return e / (1 + e)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _softplus(x: float) -> float:
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def _erf_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _clamped_domain(f: ScalarFunction, low: float, high: float) -> ScalarFunction:
    """Outside [low, high] f takes its value at the nearer end (section 7)."""
    return lambda x: f(min(max(x, low), high))


def _positive_domain(f: Callable[[float], float], at_zero: float) -> ScalarFunction:
    """Outside its domain f takes its value at the nearest point of it (section 7)."""
    return lambda x: f(x) if x > 0 else at_zero


def _leaky(alpha: float) -> ScalarFunction:
    return lambda x: x if x >= 0 else alpha * x


def _hard_sigmoid(alpha: float, beta: float) -> ScalarFunction:
    return lambda x: min(max(alpha * x + beta, 0.0), 1.0)


def _elu(alpha: float) -> ScalarFunction:
    return lambda x: x if x >= 0 else alpha * math.expm1(x)


def _selu(alpha: float, gamma: float) -> ScalarFunction:
    return lambda x: gamma * x if x > 0 else gamma * alpha * math.expm1(x)


def _celu(alpha: float) -> ScalarFunction:
    return lambda x: x if x >= 0 else alpha * math.expm1(x / alpha)


def _thresholded(alpha: float) -> ScalarFunction:
    return lambda x: x if x > alpha else 0.0


def _shrink(bias: float, lambd: float) -> ScalarFunction:
    return lambda x: x + bias if x < -lambd else x - bias if x > lambd else 0.0


PLAIN: dict[str, ScalarFunction] = {
    "Sigmoid": sigmoid,
    "Tanh": math.tanh,
    "HardSwish": lambda x: x * min(max(x / 6 + 0.5, 0.0), 1.0),
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Mish": lambda x: x * math.tanh(_softplus(x)),
    "Exp": _exp,
    "Erf": math.erf,
    "Abs": abs,
    "Neg": lambda x: -x,
    "Sqrt": _positive_domain(math.sqrt, 0.0),
    "Log": _positive_domain(math.log, -math.inf),
    "Reciprocal": lambda x: 1 / x if x != 0 else math.inf,
    "Floor": lambda x: float(math.floor(x)),
    "Ceil": lambda x: float(math.ceil(x)),
    "Round": lambda x: float(round(x)),
    "Sign": lambda x: float((x > 0) - (x < 0)),
    "Sin": math.sin,
    "Cos": math.cos,
    "Atan": math.atan,
    "Sinh": lambda x: math.sinh(max(min(x, 700.0), -700.0)),
    "Cosh": lambda x: math.cosh(max(min(x, 700.0), -700.0)),
    "Asinh": math.asinh,
    "Tan": math.tan,
    "Asin": _clamped_domain(math.asin, -1.0, 1.0),
    "Acos": _clamped_domain(math.acos, -1.0, 1.0),
    "Acosh": _clamped_domain(math.acosh, 1.0, math.inf),
    "Atanh": lambda x: math.atanh(x) if abs(x) < 1 else math.copysign(math.inf, x),
}
"""Functions without attributes."""

SPAN = {"Sigmoid": (0.0, 1.0), "HardSigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}


def _with_attributes(node: ir.Node) -> ScalarFunction | None:
    match node.op_type:
        case "LeakyRelu":
            return _leaky(attribute_float(node, "alpha", 0.01))
        case "HardSigmoid":
            return _hard_sigmoid(
                attribute_float(node, "alpha", 0.2), attribute_float(node, "beta", 0.5)
            )
        case "Elu":
            return _elu(attribute_float(node, "alpha", 1.0))
        case "Selu":
            alpha = attribute_float(node, "alpha", 1.6732632423543772)
            return _selu(alpha, attribute_float(node, "gamma", 1.0507009873554805))
        case "Celu":
            return _celu(attribute_float(node, "alpha", 1.0))
        case "ThresholdedRelu":
            return _thresholded(attribute_float(node, "alpha", 1.0))
        case "Shrink":
            return _shrink(attribute_float(node, "bias", 0.0), attribute_float(node, "lambd", 0.5))
        case "Gelu":
            return _tanh_gelu if attribute_string(node, "approximate") == "tanh" else _erf_gelu
    return None


WITH_ATTRIBUTES = (
    "LeakyRelu", "HardSigmoid", "Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink", "Gelu",
)  # fmt: skip


def match_unary(node: ir.Node, graph: FloatGraph) -> Unary | None:
    """The function of one variable that starts at `node`, the longest pattern first."""
    if node.op_type == "Div":
        return _match_quotient(node, graph)
    x = node.inputs[0] if node.inputs else None
    if x is None or graph.constant(x) is not None:
        return None
    if node.op_type in ("Sigmoid", "HardSigmoid"):
        gated = _match_gate(node, x, graph)
        if gated is not None:
            return gated
    if node.op_type == "Pow":
        return _match_power(node, x, graph)
    function = PLAIN.get(node.op_type) or _with_attributes(node)
    if function is None:
        return None
    limits = SPAN.get(node.op_type)
    return Unary(node.op_type, function, (node,), x, node.outputs[0], limits)


def _match_gate(node: ir.Node, x: ir.Value, graph: FloatGraph) -> Unary | None:
    """x * Sigmoid(x) is SiLU, x * HardSigmoid(x) a hard swish."""
    gate = node.outputs[0]
    product = graph.sole_consumer(gate)
    if product is None or product.op_type != "Mul" or not graph.hides(gate):
        return None
    if {id(v) for v in product.inputs} != {id(x), id(gate)}:
        return None
    inner = PLAIN["Sigmoid"] if node.op_type == "Sigmoid" else _with_attributes(node)
    assert inner is not None
    name = "SiLU" if node.op_type == "Sigmoid" else "HardSwish"
    return Unary(name, lambda v: v * inner(v), (node, product), x, product.outputs[0])


def _match_power(node: ir.Node, x: ir.Value, graph: FloatGraph) -> Unary | None:
    exponent = graph.scalar(node.inputs[1])
    if exponent is None or not math.isfinite(exponent):
        return None
    return Unary("Pow", _power(exponent), (node,), x, node.outputs[0])


def _power(exponent: float) -> ScalarFunction:
    def power(x: float) -> float:
        try:
            return math.pow(x, exponent)
        except OverflowError:
            return -math.inf if x < 0 and exponent % 2 else math.inf

    at_zero = math.inf if exponent < 0 else 0.0
    if exponent != int(exponent):
        return _positive_domain(power, at_zero)
    return lambda x: power(x) if x != 0 or exponent >= 0 else at_zero


def _match_quotient(node: ir.Node, graph: FloatGraph) -> Unary | None:
    """c / x."""
    numerator, x = graph.scalar(node.inputs[0]), node.inputs[1]
    if numerator is None or x is None or graph.constant(x) is not None:
        return None
    at_zero = math.copysign(math.inf, numerator)
    function = lambda v: numerator / v if v != 0 else at_zero  # noqa: E731
    return Unary("Reciprocal", function, (node,), x, node.outputs[0])


def match_unary_of(value: ir.Value, graph: FloatGraph) -> Unary | None:
    """The function that takes every use of `value`, if there is one."""
    if value.is_graph_output():
        return None
    users = {id(use.node): use.node for use in value.uses()}
    for node in users.values():
        unary = match_unary(node, graph) if node.graph is graph.graph else None
        if unary is not None and unary.input is value:
            inside = {id(n) for n in unary.nodes}
            if set(users) <= inside:
                return unary
    return None


# Tables of 16-bit inputs.

WORST_STEPS = 2.0
"""An s16 table may be this many output steps away from its function (section 7)."""

NOT_AT_16_BITS = frozenset(
    (
        "Sqrt",
        "Reciprocal",
        "Log",
        "Pow",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "ThresholdedRelu",
        "Shrink",
    )
)
"""Functions that no table of 513 entries follows: too steep at zero, or with jumps."""


def tabulate16(unary: Unary, sx: float, output: Encoding, where: str) -> numerics.Table16:
    """The table of an s16 input, shown to be within WORST_STEPS of the function.

    Raises:
        QuantizationError: it is not, naming the worst error.
    """
    if unary.name in NOT_AT_16_BITS:
        raise QuantizationError(
            f"{where}: {unary.name} has no 16-bit form",
            fix="give its input 8 bits",
            code="TW-3115",
        )
    table = numerics.table16(unary.function, sx, output.scale, output.dtype is DType.S16, where)
    worst = _worst_steps(unary, table, sx, output)
    if worst > WORST_STEPS:
        raise QuantizationError(
            f"{where}: the 16-bit table of {unary.name} is {worst:.1f} output steps off at worst, "
            f"{WORST_STEPS:g} are allowed",
            fix="give its input 8 bits or calibrate a narrower range",
            code="TW-3116",
        )
    return table


FAST: dict[str, Callable[[FloatArray], FloatArray]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
"""NumPy forms of frequent functions, good enough to measure a table but not to make one."""


def _worst_steps(unary: Unary, table: numerics.Table16, sx: float, output: Encoding) -> float:
    """The largest distance between table and function over all inputs.

    Pieces with a saturated entry do not count: there the output's range is too small, and no table
    would help.
    """
    lo, hi = output.dtype.range
    codes = np.arange(*DType.S16.range, dtype=np.int64)
    made = numerics.saturate(numerics.interpolate16(codes, table) + output.zero_point, lo, hi)
    real = np.float64(sx) * codes.astype(np.float64)
    exact = _values(unary, real) / output.scale + output.zero_point
    whole = np.abs(table.entries) < DType.S16.range.hi
    piece = (codes >> 7) + 256
    counted = whole[piece] & whole[piece + 1]
    return float(np.abs(made - np.clip(exact, lo, hi))[counted].max(initial=0.0))


def _values(unary: Unary, x: FloatArray) -> FloatArray:
    fast = FAST.get(unary.name)
    if fast is None:
        return np.array([unary.function(float(v)) for v in x])
    with np.errstate(over="ignore"):
        return fast(x)
