"""The primitive spellings of layer, instance and group normalisation become one node.

    (x - mean(x)) / sqrt(mean((x - mean(x))**2) + e) = LayerNormalization(x; 1, epsilon = e)

over any axes, with the variance also as mean(x**2) - mean(x)**2, as a sum, or times a factor f
(Bessel's correction): sqrt(f v + e) = sqrt(f) sqrt(v + e / f).  Also TensorFlow's form, with r the
inverse root and g, b constants:

    x * (r g) + (b - mean(x) * (r g)) = LayerNormalization(x; g, b)

Over the last axis it is LayerNormalization; over other axes the same between two Transposes (and
Reshapes, where they are several); over all axes of each channel InstanceNormalization, over all but
the first GroupNormalization of one group, where the factor behind is per channel.  Factors and
shifts behind are absorbed later, by affine_after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor, NearMiss, PassResult
from tilewright.importer.graphs import (
    array_of,
    float_array,
    producer_of,
    sole_consumer,
    static_shape,
)
from tilewright.importer.last_axis import over_last_axis
from tilewright.importer.statistics import (
    Float64,
    Mean,
    Quotient,
    broadcasts_along,
    deviation_of,
    mean_of,
    quotient_of,
    sources_between,
)

NAME = "layer_norm"

_Writer = Callable[[ir.Value], ir.Value]


@dataclass(frozen=True)
class _Match:
    """normalised(mean.data) * scale + shift is what `end` makes."""

    mean: Mean
    epsilon: float
    scale: Float64
    shift: Float64 | None
    end: ir.Node


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        quotient = quotient_of(node) if node.graph is not None else None
        if quotient is None or not quotient.root.centred:
            continue
        match = _match(quotient)
        if isinstance(match, str):
            misses.append(NearMiss.at(node, NAME, match))
        else:
            changes += _write(editor, match)
    return PassResult(NAME, changes, tuple(misses))


def _match(quotient: Quotient) -> _Match | str:
    root = quotient.root
    mean = root.square
    if root.added:
        return f"epsilon ({root.added:g}) is added to the deviation, not to the variance"
    if root.floor:
        return f"its deviation is bounded by {root.floor:g} instead of having an epsilon added"
    scale = quotient.scale / math.sqrt(mean.factor)
    epsilon = root.epsilon / mean.factor
    deviation = deviation_of(quotient.numerator)
    if deviation is not None and deviation.data is mean.data:
        if deviation.axes != mean.axes:
            return (
                f"its mean is over axes {list(deviation.axes)}, "
                f"its variance over axes {list(mean.axes)}"
            )
        return _Match(mean, epsilon, scale, None, quotient.node)
    name = mean.data.name
    if quotient.numerator is not mean.data:
        return f"it divides {quotient.numerator.name} by the deviation of {name}"
    end = _subtraction_of_the_mean(quotient)
    if end is None:
        return f"it divides {name} by its deviation, but its mean is not subtracted"
    return _Match(mean, epsilon, scale, end[1], end[0])


def _subtraction_of_the_mean(quotient: Quotient) -> tuple[ir.Node, Float64 | None] | None:
    """The node that makes x m + (b - mean(x) m), or x m - mean(x) m, and b; m is the inverse."""
    product, mean = quotient.node, quotient.root.square
    if product.op_type != "Mul":
        return None
    inverse = next(v for v in product.inputs if v is not quotient.numerator)
    end = sole_consumer(product.outputs[0])
    if end is None or end.domain != "" or inverse is None:
        return None
    if end.op_type == "Sub" and end.inputs[0] is product.outputs[0]:
        return (end, None) if _is_mean_times(end.inputs[1], mean, inverse) else None
    if end.op_type != "Add":
        return None
    other = next((v for v in end.inputs if v is not product.outputs[0]), None)
    difference = producer_of(other, "Sub")
    if difference is None or not _is_mean_times(difference.inputs[1], mean, inverse):
        return None
    shift = float_array(difference.inputs[0])
    return None if shift is None else (end, shift)


def _is_mean_times(value: ir.Value | None, mean: Mean, inverse: ir.Value) -> bool:
    product = producer_of(value, "Mul")
    if product is None or inverse not in product.inputs:
        return False
    operand = next((v for v in product.inputs if v is not inverse), None)
    found = mean_of(operand)
    return (
        found is not None
        and found.data is mean.data
        and found.axes == mean.axes
        and math.isclose(found.factor, 1.0, rel_tol=1e-6)
        and broadcasts_along(operand, mean)
    )


def _write(editor: Editor, match: _Match) -> bool:
    data, axes, end = match.mean.data, match.mean.axes, match.end
    shape, dtype = static_shape(data), data.dtype
    if shape is None or dtype is None or static_shape(end.outputs[0]) != shape:
        return False
    sources = sources_between(data, end)
    kind = dtype.numpy()

    def normalise(op_type: str, count: int, attributes: dict[str, Attribute]) -> _Writer:
        def write(x: ir.Value) -> ir.Value:
            ones = editor.constant(np.ones(count, kind), f"{end.name}_scale")
            operands = [x, ones]
            if op_type != "LayerNormalization":
                operands.append(editor.constant(np.zeros(count, kind), f"{end.name}_bias"))
            settings = {**attributes, "epsilon": match.epsilon}
            return editor.emit(op_type, operands, settings, before=end, sources=sources)[0]

        return write

    per_channel = len(shape) > 2 and _is_per_channel(match, shape)
    if per_channel and axes == tuple(range(2, len(shape))):
        result = normalise("InstanceNormalization", shape[1], {})(data)
    elif per_channel and axes == tuple(range(1, len(shape))):
        result = normalise("GroupNormalization", shape[1], {"num_groups": 1})(data)
    else:
        last = len(shape) - len(axes)
        write = normalise("LayerNormalization", match.mean.count, {"axis": last})
        result = over_last_axis(editor, data, axes, write, before=end, sources=sources)
    for op_type, constant, neutral in (("Mul", match.scale, 1.0), ("Add", match.shift, 0.0)):
        if constant is not None and (constant != neutral).any():
            operand = editor.constant(constant.astype(kind), f"{end.name}_{op_type.lower()}")
            result = editor.emit(op_type, [result, operand], before=end, sources=sources)[0]
    return editor.replace(end.outputs[0], result)


def _is_per_channel(match: _Match, shape: Sequence[int]) -> bool:
    """Whether the factor or shift in or behind the pattern varies along axis 1 only."""
    constants = [c for c in (match.scale, match.shift) if c is not None and c.size > 1]
    reader = sole_consumer(match.end.outputs[0])
    if not constants and reader is not None and reader.op_type in ("Mul", "Add"):
        constants = [np.asarray(c) for v in reader.inputs if (c := array_of(v)) is not None]
    if not constants:
        return match.mean.axes == tuple(range(1, len(shape)))
    channels = (1, shape[1], *(1,) * (len(shape) - 2))
    dims = [(1,) * (len(shape) - c.ndim) + c.shape for c in constants]
    return all(d in (channels, (1,) * len(shape)) for d in dims)
