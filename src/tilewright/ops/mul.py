"""Mul and Div: of two run-time tensors, or by a constant.

y = sat(R24((a-za)*(b-zb); sa*sb/sy) + zy)

A scalar constant only changes the ratio of a Rescale, a vector along one axis becomes a depthwise
convolution, any other constant a stored s16 operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.graph import Array, DType, Encoding, TensorType, attribute
from tilewright.ops import channelwise, clamp, constant, elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.conv import Conv
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.protocol import NpuOperator, Region, Tile, region_shape
from tilewright.program import isa

ONNX = ("Mul", "Div")
KINDS = ("Mul",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = "any broadcasting; either operand of Mul and the divisor of Div may be constant"


@dataclass(frozen=True, eq=False)
class Mul(NpuOperator):
    """Product of two tensors of one rank, element by element."""

    CODE = 8
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        """The product of two codes stays below 2**32, far inside R24's range."""
        elementwise.require_activations(inputs, where)
        return (elementwise.broadcast_shape([x.shape for x in inputs], where),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (a, b), (at, bt), (yt,) = inputs, types, out
        product = (a.astype(np.int64) - at.zero_point) * (b.astype(np.int64) - bt.zero_point)
        y = numerics.r24(product, self.multiplier, self.shift) + yt.zero_point
        return [numerics.saturate(y, self.lo, self.hi).astype(yt.dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return elementwise.broadcast_needs(region, [x.shape for x in inputs])

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        a, b = tile.inputs
        needs = self.needs(tile.region, [a.type, b.type], tile.output.type)
        bases = (a.origin(needs[0]), b.origin(needs[1]), tile.output.origin(tile.region))
        strides = [
            elementwise.broadcast_strides(a),
            elementwise.broadcast_strides(b),
            tile.output.strides,
        ]
        return [
            isa.Multiply(
                a=bases[0] + box.offsets[0],
                b=bases[1] + box.offsets[1],
                y=bases[2] + box.offsets[2],
                shape=box.shape,
                a_strides=box.strides[0],
                b_strides=box.strides[1],
                y_strides=box.strides[2],
                types=(a.type.dtype, b.type.dtype, tile.output.type.dtype),
                zeros=(a.type.zero_point, b.type.zero_point, tile.output.type.zero_point),
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 4)
        ]


OPERATORS = (Mul, clamp.Rescale, Conv)


@dataclass(frozen=True)
class MulPattern:
    """Shape-level product.

    Args:
        factor: the constant factor, float64 (of a Div the reciprocal), None for two tensors.
        axis: the one ONNX axis along which the factor differs, None if it is a scalar or a box.
    """

    factor: Array | None
    axis: int | None
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Mul, or a Div by a constant, and the clamps behind it."""
    a, b = node.inputs
    assert a is not None and b is not None
    left, right = graph.constant(a), graph.constant(b)
    if node.op_type == "Div":
        if right is None:
            return Refusal("its divisor is computed at run time")
        if not right.all():
            return Refusal("its divisor is zero")
    x, factor = (a, right) if right is not None else (b, left)
    if factor is None:
        activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
        nodes = (node, *activation.nodes)
        return Site("Mul", nodes, (a, b), (activation.output,), MulPattern(None, None, activation))
    factor = factor.astype(np.float64)
    if not np.isfinite(factor).all():
        return Refusal("its constant is not finite")
    if node.op_type == "Div":
        factor = 1.0 / factor
    shape = shape_of(node.outputs[0])
    axes = elementwise.varying_axes(factor, len(shape))
    axis = axes[0] if len(axes) == 1 and shape == shape_of(x) else None
    activation = absorb_clamps(node.outputs[0], graph, axis)
    pattern = MulPattern(factor, axis, activation)
    macs = 0 if axis is None else int(np.prod(shape, dtype=np.int64))
    nodes = (node, *activation.nodes)
    return Site("Mul", nodes, (x,), (activation.output,), pattern, macs=macs)


def bind(site: Site, builder: Builder) -> None:
    """The cheapest operator that computes the product exactly once rounded."""
    pattern: MulPattern = site.pattern
    value = pattern.activation.output
    rank = len(shape_of(value))
    output = builder.encoding(value)
    if pattern.factor is None:
        a, b = elementwise.aligned(builder, site.inputs, rank)
        _append_product(builder, site, a, b, output)
    elif pattern.axis is not None:
        x = channelwise.operand(builder, site.inputs[0], pattern.axis)
        gain = pattern.factor.reshape(-1)
        channels = channelwise.gains(gain, np.zeros(gain.size), x)
        channelwise.append(builder, site, x, channels, pattern.activation)
    elif pattern.factor.size == 1:
        x = elementwise.lifted(builder, builder.operand(site.inputs[0]), rank)
        ratio = _saturating(float(pattern.factor.reshape(())) * x.type.scale, output)
        lo, hi = clamp_pair(pattern.activation, output)
        op = clamp.rescale(ratio, output, site.name, lo, hi)
        builder.add(op, [x], output, x.permutation, value)
    else:
        x = elementwise.lifted(builder, builder.operand(site.inputs[0]), rank)
        stored = elementwise.stored_constant(pattern.factor, x.permutation)
        factor = constant.symmetric(builder, stored, DType.S16, x.permutation)
        _append_product(builder, site, x, factor, output)


def _saturating(scale: float, output: Encoding) -> float:
    """The scale, or one of no more than 2**21 output steps: any code but zero saturates either way.

    Masks are made with factors as large as 3.4e38.
    """
    most = 2.0**21 * output.scale
    return max(-most, min(scale, most))


def _append_product(builder: Builder, site: Site, a: Operand, b: Operand, output: Encoding) -> None:
    pattern: MulPattern = site.pattern
    ratio = a.type.scale * b.type.scale / output.scale
    m, shift = numerics.multiplier(ratio, site.name)
    lo, hi = clamp_pair(pattern.activation, output)
    value = pattern.activation.output
    builder.add(Mul(m, shift, lo, hi), [a, b], output, a.permutation, value)
