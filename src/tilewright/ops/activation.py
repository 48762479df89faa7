"""What follows an operator and fuses into its epilogue: clamps and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright import numerics
from tilewright.graph import Encoding
from tilewright.ops.functions import NOT_AT_16_BITS, Unary, match_unary_of
from tilewright.ops.pattern import FloatGraph, shape_of

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Activation:
    """The fused tail of an operator.

    Args:
        nodes: ONNX nodes that it covers.
        output: the ONNX value that the fused operator makes.
        low, high: the clamp in reals, each [1] or [channels].
        unary: a function applied after the accumulator was rounded to s16.
        inner: the ONNX value between the operator and `unary`.
    """

    nodes: tuple[ir.Node, ...]
    output: ir.Value
    low: FloatArray
    high: FloatArray
    unary: Unary | None = None
    inner: ir.Value | None = None


def _free() -> tuple[FloatArray, FloatArray]:
    return np.array([-math.inf]), np.array([math.inf])


def unclamped(value: ir.Value) -> Activation:
    """No activation at all."""
    return Activation((), value, *_free())


def absorb_clamps(value: ir.Value, graph: FloatGraph, channel_axis: int | None) -> Activation:
    """Relu, Clip and Min/Max with constants that may fuse into the operator that makes `value`.

    Args:
        channel_axis: the ONNX axis along which bounds may differ; None allows scalars only.
    """
    nodes: list[ir.Node] = []
    low, high = _free()
    while graph.hides(value):
        node = graph.sole_consumer(value)
        bounds = clamp_bounds(node, graph, channel_axis) if node is not None else None
        if node is None or bounds is None or shape_of(node.outputs[0]) != shape_of(value):
            break
        low = np.minimum(np.maximum(low, bounds[0]), bounds[1])
        high = np.minimum(np.maximum(high, bounds[0]), bounds[1])
        nodes.append(node)
        value = node.outputs[0]
    return Activation(tuple(nodes), value, low, high)


def absorb(value: ir.Value, graph: FloatGraph, channel_axis: int | None) -> Activation:
    """As `absorb_clamps`, or else a table behind an s16 pre-activation."""
    clamped = absorb_clamps(value, graph, channel_axis)
    if clamped.nodes or not graph.hides_as_s16(value):
        return clamped
    unary = match_unary_of(value, graph)
    if unary is None or unary.name in NOT_AT_16_BITS:
        return clamped
    return Activation(unary.nodes, unary.output, clamped.low, clamped.high, unary, value)


def clamp_bounds(
    node: ir.Node, graph: FloatGraph, channel_axis: int | None
) -> tuple[FloatArray, FloatArray] | None:
    """Bounds of a clamping node, each [1] or [channels]; None if it is not one."""
    low, high = _free()
    match node.op_type:
        case "Relu":
            return np.array([0.0]), high
        case "Clip":
            bounds = [low, high]
            for i, v in enumerate(node.inputs[1:3]):
                if v is None:
                    continue
                scalar = graph.scalar(v)
                if scalar is None:
                    return None
                bounds[i] = np.array([scalar])
            # Where the bounds cross, ONNX's Clip gives the upper one everywhere.
            return np.minimum(bounds[0], bounds[1]), bounds[1]
        case "Min" | "Max":
            bound = _constant_bound(node, graph, channel_axis)
            if bound is None:
                return None
            return (low, bound) if node.op_type == "Min" else (bound, high)
    return None


def _constant_bound(
    node: ir.Node, graph: FloatGraph, channel_axis: int | None
) -> FloatArray | None:
    constants = [c for v in node.inputs if (c := graph.constant(v)) is not None]
    if len(node.inputs) != 2 or len(constants) != 1:
        return None
    array = constants[0].astype(np.float64)
    if array.size == 1:
        return array.reshape(1)
    rank = len(shape_of(node.outputs[0]))
    shape = (1,) * (rank - array.ndim) + array.shape
    if channel_axis is None or array.size != shape[channel_axis]:
        return None
    return array.reshape(-1)


def clamp_codes(
    low: FloatArray, high: FloatArray, encoding: Encoding, channels: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """lo and hi [channels] in codes: the type's range cut by the activation (section 2)."""
    lo, hi = encoding.dtype.range

    def codes(bounds: FloatArray) -> npt.NDArray[Any]:
        row = [
            numerics.constant_code(float(b), encoding.scale, encoding.zero_point, lo, hi)
            for b in bounds
        ]
        return np.broadcast_to(np.array(row, np.int64), channels)

    return codes(low), codes(high)


def clamp_pair(activation: Activation, encoding: Encoding) -> tuple[int, int]:
    """lo and hi in codes of an activation whose bounds are scalars."""
    low, high = clamp_codes(activation.low, activation.high, encoding, 1)
    return int(low[0]), int(high[0])
