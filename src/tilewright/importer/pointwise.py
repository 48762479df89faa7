"""Parts of a graph that compute a function of one variable, element by element.

A part is found backwards from its result through elementwise operators whose other operands are
scalar constants, until a single run-time tensor of the result's shape remains.  Its function is
known by its values, so operand order and spelling (a square as Pow or Mul, a division as a
multiplication, constants anywhere) do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.graphs import (
    float_attribute,
    is_constant,
    is_float_constant,
    scalar_of,
    static_shape,
)

Float64 = npt.NDArray[np.float64]

_LARGEST_PART = 24

_erf: Callable[[Float64], Float64] = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Float64) -> Float64:
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x: Float64) -> Float64:
    return np.log1p(np.exp(x))


def gelu(x: Float64) -> Float64:
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


def tanh_gelu(x: Float64) -> Float64:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Float64) -> Float64:
    return x * sigmoid(x)


def mish(x: Float64) -> Float64:
    return x * np.tanh(softplus(x))


def hard_swish(x: Float64) -> Float64:
    return x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)


def _hard_sigmoid(node: ir.Node, x: Float64) -> Float64:
    alpha, beta = float_attribute(node, "alpha", 0.2), float_attribute(node, "beta", 0.5)
    return np.clip(alpha * x + beta, 0.0, 1.0)


_BINARY: dict[str, Callable[[Float64, Float64], Float64]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Max": np.maximum,
    "Min": np.minimum,
}

_UNARY: dict[str, Callable[[ir.Node, Float64], Float64]] = {
    "Abs": lambda _, x: np.abs(x),
    "Erf": lambda _, x: _erf(x),
    "Exp": lambda _, x: np.exp(x),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda _, x: hard_swish(x),
    "Log": lambda _, x: np.log(x),
    "Neg": lambda _, x: -x,
    "Reciprocal": lambda _, x: 1.0 / x,
    "Relu": lambda _, x: np.maximum(x, 0.0),
    "Sigmoid": lambda _, x: sigmoid(x),
    "Softplus": lambda _, x: softplus(x),
    "Sqrt": lambda _, x: np.sqrt(x),
    "Tanh": lambda _, x: np.tanh(x),
}

_COMPARISONS: dict[str, Callable[[Float64, Float64], npt.NDArray[np.bool_]]] = {
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}

ELEMENTWISE = frozenset({*_BINARY, *_UNARY, "Clip"})
_WITH_CHOICES = ELEMENTWISE | {*_COMPARISONS, "Where"}


@dataclass(frozen=True)
class Part:
    """Nodes, in topological order, that compute `output` from `source` alone."""

    source: ir.Value
    output: ir.Value
    nodes: tuple[ir.Node, ...]

    def __call__(self, x: Float64) -> Float64:
        """The part's function in float64; NaN and infinities where it has none."""
        known: dict[ir.Value, Float64] = {self.source: x}
        with np.errstate(all="ignore"):
            for node in self.nodes:
                operands = [_operand(value, known) for value in node.inputs if value is not None]
                known[node.outputs[0]] = np.asarray(_compute(node, operands), np.float64)
        return np.broadcast_to(known[self.output], x.shape)


def _operand(value: ir.Value, known: Mapping[ir.Value, Float64]) -> Float64:
    found = known.get(value)
    return np.asarray(scalar_of(value), np.float64) if found is None else found


def _compute(node: ir.Node, operands: Sequence[Float64]) -> Float64:
    if node.op_type == "Clip":
        return np.clip(operands[0], operands[1], operands[2])
    if node.op_type == "Where":
        return np.where(operands[0] != 0.0, operands[1], operands[2])
    comparison = _COMPARISONS.get(node.op_type)
    if comparison is not None:
        return comparison(operands[0], operands[1]).astype(np.float64)
    binary = _BINARY.get(node.op_type)
    if binary is not None:
        return binary(operands[0], operands[1])
    return _UNARY[node.op_type](node, operands[0])


def parts_ending_at(root: ir.Node, position: Mapping[ir.Node, int]) -> Iterator[Part]:
    """Every part that ends at the node, the smallest first.

    Args:
        position: place of each node in the graph's order.
    """
    nodes: list[ir.Node] = []
    frontier: dict[ir.Value, None] = {root.outputs[0]: None}
    shape = static_shape(root.outputs[0])
    while len(nodes) < _LARGEST_PART and frontier:
        value = max(frontier, key=lambda v: _position_of_maker(v, position))
        node = value.producer()
        if node is None or node not in position:
            return
        operands = _run_time_operands(node)
        if operands is None:
            return
        del frontier[value]
        frontier.update(dict.fromkeys(operands))
        nodes.append(node)
        if len(frontier) == 1:
            (source,) = frontier
            if static_shape(source) == shape and source.dtype != ir.DataType.BOOL:
                yield Part(source, root.outputs[0], tuple(reversed(nodes)))


def _position_of_maker(value: ir.Value, position: Mapping[ir.Node, int]) -> int:
    maker = value.producer()
    return -1 if maker is None else position.get(maker, -1)


def _run_time_operands(node: ir.Node) -> list[ir.Value] | None:
    """Its inputs that are no scalar constants; None when the node is not elementwise in them."""
    if node.domain != "" or node.op_type not in _WITH_CHOICES:
        return None
    operands = []
    for value in node.inputs:
        if value is None:
            return None
        if is_constant(value):
            if not is_float_constant(value) or scalar_of(value) is None:
                return None
        elif value.dtype is not None and _is_number_or_condition(value.dtype):
            operands.append(value)
        else:
            return None
    return operands


def _is_number_or_condition(dtype: ir.DataType) -> bool:
    return dtype.is_floating_point() or dtype == ir.DataType.BOOL


def positions(graph: ir.Graph) -> dict[ir.Node, int]:
    return {node: index for index, node in enumerate(graph)}
