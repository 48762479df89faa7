"""Means, roots of squares, and quotients by such roots, in the spellings of several exporters.

    mean(x)     ReduceMean(x), GlobalAveragePool(x), ReduceSum(x) * c
    square(x)   Pow(x, 2), x * x
    root(v)     Sqrt(v), Pow(v, 1/2); epsilon added, or a lower bound, inside or outside
    n / root    n / Sqrt(v), n * Reciprocal(Sqrt(v)), n * Pow(v, -1/2), n * (c / Sqrt(v))

A reduced tensor may pass through Reshape on its way (keepdims = 0), as long as it arrives in the
shape that broadcasts along the reduced axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.graphs import (
    array_of,
    data_input,
    float_array,
    input_at,
    producer_of,
    scalar_of,
    static_shape,
)

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mean:
    """`factor` times the mean of `data` over `axes` (ascending, from the front)."""

    data: ir.Value
    axes: tuple[int, ...]
    factor: float = 1.0

    @property
    def count(self) -> int:
        """Elements per mean."""
        shape = static_shape(self.data) or ()
        return math.prod(shape[axis] for axis in self.axes)


@dataclass(frozen=True)
class Root:
    """max(sqrt(factor * mean((data - centre)**2) + epsilon), floor) + added.

    Attributes:
        square: data, axes and factor.
        centred: the centre is the mean of the data over the same axes; else it is 0.
    """

    square: Mean
    centred: bool
    epsilon: float = 0.0
    floor: float = 0.0
    added: float = 0.0


@dataclass(frozen=True)
class Quotient:
    """numerator * scale / root, as computed by `node`.

    Attributes:
        inverse: the operand of the node that stands for (scale /) root.
    """

    node: ir.Node
    numerator: ir.Value
    root: Root
    scale: Float64
    inverse: ir.Value

    def sources(self) -> list[ir.Node]:
        """The nodes from the tensor whose root it is to the quotient."""
        return sources_between(self.root.square.data, self.node)


def mean_of(value: ir.Value | None) -> Mean | None:
    """The mean that the value holds, times a factor, in whatever shape."""
    factor, value = _unscaled(value)
    node = value.producer() if value is not None else None
    if node is None or node.domain != "":
        return None
    data = input_at(node, 0)
    shape = static_shape(data)
    if data is None or shape is None:
        return None
    if node.op_type == "GlobalAveragePool":
        return Mean(data, tuple(range(2, len(shape))), factor)
    axes = array_of(input_at(node, 1))
    if node.op_type not in ("ReduceMean", "ReduceSum") or axes is None:
        return None
    found = Mean(data, tuple(sorted(int(axis) % len(shape) for axis in axes)), factor)
    if not found.axes:
        return None
    return found if node.op_type == "ReduceMean" else replace(found, factor=factor * found.count)


def _unscaled(value: ir.Value | None) -> tuple[float, ir.Value | None]:
    """The value without Reshapes and scalar factors around it, and the factor."""
    factor = 1.0
    while value is not None:
        node = value.producer()
        if node is None or node.domain != "":
            break
        scalar = scalar_of(node.inputs[1]) if len(node.inputs) == 2 else None
        if node.op_type == "Mul" and scalar is not None:
            factor *= scalar
        elif node.op_type == "Div" and scalar:
            factor /= scalar
        elif node.op_type == "Neg":
            factor = -factor
        elif node.op_type != "Reshape":
            break
        value = node.inputs[0]
    return factor, value


def without_reshapes(value: ir.Value | None) -> ir.Value | None:
    """The value without Reshapes around it."""
    while (node := producer_of(value, "Reshape")) is not None:
        value = node.inputs[0]
    return value


def square_of(value: ir.Value | None) -> ir.Value | None:
    """x where the value is x * x."""
    power = producer_of(value, "Pow")
    if power is not None:
        return power.inputs[0] if scalar_of(_exponent(power)) == 2.0 else None
    product = producer_of(value, "Mul")
    if product is not None and product.inputs[0] is product.inputs[1]:
        return product.inputs[0]
    return None


def _exponent(node: ir.Node) -> ir.Value | None:
    return input_at(node, 1)


def mean_square_of(value: ir.Value | None) -> Mean | None:
    """The mean of squares that the value holds; its `data` is the tensor that is squared."""
    mean = mean_of(value)
    if mean is not None:
        squared = square_of(mean.data)
        return None if squared is None else replace(mean, data=squared)
    factor, value = _unscaled(value)
    node = producer_of(value, "ReduceSumSquare")
    axes = array_of(input_at(node, 1)) if node is not None else None
    if node is None or axes is None:
        return None
    found = Mean(data_input(node), tuple(sorted(int(axis) for axis in axes)), factor)
    return replace(found, factor=factor * found.count) if found.axes else None


def deviation_of(value: ir.Value | None) -> Mean | None:
    """The mean m of x where the value is x - m."""
    node = producer_of(value, "Sub") or producer_of(value, "Add")
    if node is None:
        return None
    sign = 1.0 if node.op_type == "Sub" else -1.0
    for position in (1, 0) if node.op_type == "Add" else (1,):
        data, mean = node.inputs[1 - position], mean_of(node.inputs[position])
        if mean is not None and mean.data is data and math.isclose(mean.factor, sign, rel_tol=1e-6):
            operand = node.inputs[position]
            return replace(mean, factor=1.0) if broadcasts_along(operand, mean) else None
    return None


def broadcasts_along(value: ir.Value | None, mean: Mean) -> bool:
    """Whether the value has the shape of `mean` with its axes kept as 1."""
    shape, whole = static_shape(value), static_shape(mean.data)
    if shape is None or whole is None:
        return False
    kept = tuple(1 if axis in mean.axes else dim for axis, dim in enumerate(whole))
    return (1,) * (len(kept) - len(shape)) + shape == kept


def root_of(value: ir.Value | None) -> Root | None:
    """The root of a mean of squares that the value holds."""
    value = without_reshapes(value)
    added, inner = _plus_constant(value)
    floor, inner = _at_least(without_reshapes(inner))
    inner = without_reshapes(inner)
    norm = producer_of(inner, "ReduceL2")
    if norm is not None:
        square = _sum_of_squares(norm)
        return None if square is None else Root(square, False, 0.0, floor, added)
    radicand = _radicand(inner, 0.5)
    found = None if radicand is None else _root_of_radicand(radicand)
    if found is None:
        return None
    return replace(found, floor=max(found.floor, floor), added=added)


def _sum_of_squares(norm: ir.Node) -> Mean | None:
    axes, data = array_of(input_at(norm, 1)), data_input(norm)
    if axes is None or not axes.size or static_shape(data) is None:
        return None
    found = Mean(data, tuple(sorted(int(axis) for axis in axes)))
    return replace(found, factor=float(found.count))


def _radicand(value: ir.Value | None, exponent: float) -> ir.Value | None:
    """v where the value is v to the power of 1/2 or -1/2."""
    root = producer_of(value, "Sqrt") if exponent > 0 else None
    if root is not None:
        return root.inputs[0]
    power = producer_of(value, "Pow")
    if power is not None and scalar_of(_exponent(power)) == exponent:
        return power.inputs[0]
    return None


def _root_of_radicand(value: ir.Value) -> Root | None:
    """sqrt(v) for v = a mean of squares, plus epsilon or at least a floor."""
    epsilon, inner = _plus_constant(without_reshapes(value))
    floor, inner = _at_least(without_reshapes(inner))
    if epsilon < 0 or floor < 0:
        return None
    square, centred = _spread(without_reshapes(inner))
    if square is None or square.factor <= 0:
        return None
    return Root(square, centred, epsilon, math.sqrt(floor))


def _spread(value: ir.Value | None) -> tuple[Mean | None, bool]:
    """The mean of squares or the variance that the value holds, and whether it is a variance."""
    square = mean_square_of(value)
    if square is not None:
        mean = deviation_of(square.data)
        if mean is not None and mean.axes == square.axes:
            return replace(square, data=mean.data), True
        return square, False
    difference = producer_of(value, "Sub")
    if difference is None:
        return None, False
    square, mean = mean_square_of(difference.inputs[0]), _squared_mean(difference.inputs[1])
    if square is None or mean is None or square.factor <= 0:
        return None, False
    same = square.data is mean.data and square.axes == mean.axes
    if not same or not math.isclose(mean.factor, square.factor, rel_tol=1e-5):
        return None, False
    return square, True


def _squared_mean(value: ir.Value | None) -> Mean | None:
    """The mean whose square the value is; the factor is that of the square."""
    factor, value = _unscaled(value)
    mean = mean_of(square_of(value))
    return None if mean is None else replace(mean, factor=factor * mean.factor**2)


def _plus_constant(value: ir.Value | None) -> tuple[float, ir.Value | None]:
    add = producer_of(value, "Add")
    for position in (1, 0):
        scalar = scalar_of(add.inputs[position]) if add is not None else None
        if add is not None and scalar is not None:
            return scalar, add.inputs[1 - position]
    return 0.0, value


def _at_least(value: ir.Value | None) -> tuple[float, ir.Value | None]:
    """The lower bound of a Clip without an upper one, a Max or a Relu, and what it bounds."""
    node = value.producer() if value is not None else None
    if node is None or node.domain != "":
        return 0.0, value
    if node.op_type == "Relu":
        return 0.0, node.inputs[0]
    bound = scalar_of(input_at(node, 1))
    if node.op_type == "Clip" and bound is not None:
        high = scalar_of(input_at(node, 2))
        unbounded = high is not None and high >= float(np.finfo(np.float32).max)
        return (bound, node.inputs[0]) if unbounded else (0.0, value)
    if node.op_type == "Max" and bound is not None and len(node.inputs) == 2:
        return bound, node.inputs[0]
    return 0.0, value


def quotient_of(node: ir.Node) -> Quotient | None:
    """The quotient by a root of a mean of squares that the node computes."""
    if node.domain != "" or node.op_type not in ("Div", "Mul"):
        return None
    if node.op_type == "Div":
        root = root_of(node.inputs[1])
        one = np.ones((), np.float64)
        if root is None:
            return None
        return _checked(node, data_input(node), root, one, data_input(node, 1))
    for position in (1, 0):
        found = _inverse_of(node.inputs[position])
        if found is not None:
            root, scale, inverse = found
            return _checked(node, data_input(node, 1 - position), root, scale, inverse)
    return None


def _checked(
    node: ir.Node, numerator: ir.Value, root: Root, scale: Float64, inverse: ir.Value
) -> Quotient | None:
    """The quotient, if the root broadcasts along the axes that it was taken over."""
    if not broadcasts_along(inverse, root.square):
        return None
    if static_shape(numerator) != static_shape(node.outputs[0]):
        return None
    if static_shape(numerator) != static_shape(root.square.data):
        return None
    product = producer_of(numerator, "Mul")
    constant = float_array(product.inputs[1]) if product is not None else None
    if product is not None and constant is not None:
        bare = data_input(product)
        if static_shape(bare) == static_shape(numerator):
            numerator, scale = bare, scale * constant
    return Quotient(node, numerator, root, scale, inverse)


def _inverse_of(value: ir.Value | None) -> tuple[Root, Float64, ir.Value] | None:
    """(root, c, the reduced tensor) where the value is c / root for a constant c."""
    scale: Float64 = np.ones((), np.float64)
    product = producer_of(value, "Mul")
    while product is not None:
        constant = float_array(product.inputs[1])
        if constant is None:
            return None
        scale = scale * constant
        value = product.inputs[0]
        product = producer_of(value, "Mul")
    if value is None:
        return None
    bare = without_reshapes(value)
    quotient = producer_of(bare, "Div")
    if quotient is not None:
        numerator, root = float_array(quotient.inputs[0]), root_of(quotient.inputs[1])
        if numerator is None or root is None:
            return None
        if numerator.size == 1:
            return root, scale * numerator.reshape(()), value
        return root, scale * numerator, data_input(quotient, 1)
    reciprocal = producer_of(bare, "Reciprocal")
    root = root_of(reciprocal.inputs[0]) if reciprocal is not None else _root_of_inverse(bare)
    return None if root is None else (root, scale, value)


def _root_of_inverse(value: ir.Value | None) -> Root | None:
    """The root whose inverse is spelled Pow(v, -1/2) or Sqrt(1 / v)."""
    radicand = _radicand(value, -0.5)
    if radicand is None:
        inverse = _radicand(value, 0.5)
        reciprocal = producer_of(without_reshapes(inverse), "Reciprocal")
        radicand = reciprocal.inputs[0] if reciprocal is not None else None
    return None if radicand is None else _root_of_radicand(radicand)


def sources_between(data: ir.Value, end: ir.Node) -> list[ir.Node]:
    """The nodes by which `end` depends on the value alone, `end` last."""
    inside: list[ir.Node] = []
    stack, seen = [end], {data}
    while stack:
        node = stack.pop()
        inside.append(node)
        for value in node.inputs:
            if value is None or value in seen:
                continue
            seen.add(value)
            maker = value.producer()
            if maker is not None:
                stack.append(maker)
    return inside[::-1]
