"""Rescale: Relu, Clip, Min and Max of their own.

y = clamp(R24(x - zx; sx/sy) + zy)

Bounds that differ along one axis make it a depthwise 1x1 convolution with weights of one, whose
channels carry their own clamps: R24(1 * (x - zx); sx/sy) is the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.graph import Array, Encoding, TensorType, attribute
from tilewright.ops import channelwise, elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_bounds, clamp_pair
from tilewright.ops.builder import Builder
from tilewright.ops.conv import Conv
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.protocol import NpuOperator, Region, Tile, region_shape
from tilewright.program import isa

ONNX = ("Relu", "Clip", "Min", "Max")
KINDS = ("Rescale",)
TYPES = "u8, s8, s16"
LIMITS = "bounds constant: scalars, or a vector along one axis"


@dataclass(frozen=True, eq=False)
class Rescale(NpuOperator):
    """Requantization and clamp of every element."""

    CODE = 12
    multiplier: int = attribute("multiplier of R24; negative to negate")
    shift: int = attribute("shift of R24")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        elementwise.require_activations(inputs, where)
        return (inputs[0].shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        centred = inputs[0].astype(np.int64) - types[0].zero_point
        y = numerics.r24(centred, self.multiplier, self.shift) + out[0].zero_point
        return [numerics.saturate(y, self.lo, self.hi).astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return (region,)

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        strides = [view.strides, tile.output.strides]
        return [
            isa.Rescale(
                x=x + box.offsets[0],
                y=y + box.offsets[1],
                shape=box.shape,
                x_strides=box.strides[0],
                y_strides=box.strides[1],
                types=(view.type.dtype, tile.output.type.dtype),
                zeros=(view.type.zero_point, tile.output.type.zero_point),
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 6)
        ]


OPERATORS = (Rescale, Conv)


@dataclass(frozen=True)
class ClampPattern:
    """Shape-level clamp; `axis` is the ONNX axis along which bounds differ, None for scalars."""

    activation: Activation
    axis: int | None


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A clamping node and the clamps behind it."""
    run_time = [v for v in node.inputs if v is not None and graph.constant(v) is None]
    if len(run_time) != 1:
        return Refusal("more than one of its operands is computed at run time")
    x = run_time[0]
    if shape_of(x) != shape_of(node.outputs[0]):
        return Refusal("its bound broadcasts its input")
    axis = _bound_axis(node, graph)
    bounds = clamp_bounds(node, graph, axis)
    if bounds is None:
        return Refusal("its bounds differ along more than one axis")
    tail = absorb_clamps(node.outputs[0], graph, axis)
    low, high = (np.minimum(np.maximum(b, tail.low), tail.high) for b in bounds)
    activation = Activation((node, *tail.nodes), tail.output, low, high)
    pattern = ClampPattern(activation, axis)
    return Site("Rescale", activation.nodes, (x,), (tail.output,), pattern)


def _bound_axis(node: ir.Node, graph: FloatGraph) -> int | None:
    if node.op_type not in ("Min", "Max"):
        return None
    rank = len(shape_of(node.outputs[0]))
    arrays = [a for v in node.inputs if (a := graph.constant(v)) is not None]
    axes = [axis for a in arrays for axis in elementwise.varying_axes(a, rank)]
    return axes[0] if len(axes) == 1 else None


def bind(site: Site, builder: Builder) -> None:
    """One Rescale, or a convolution by ones where bounds differ along an axis."""
    pattern: ClampPattern = site.pattern
    activation = pattern.activation
    value = activation.output
    if max(activation.low.size, activation.high.size) > 1:
        assert pattern.axis is not None
        x = channelwise.operand(builder, site.inputs[0], pattern.axis)
        channelwise.append(builder, site, x, channelwise.ones(x), activation)
        return
    x = builder.operand(site.inputs[0])
    output = builder.encoding(value)
    lo, hi = clamp_pair(activation, output)
    op = rescale(x.type.scale, output, site.name, lo, hi)
    builder.add(op, [x], output, x.permutation, value)


def rescale(scale: float, output: Encoding, where: str, lo: int, hi: int) -> Rescale:
    """The operator that brings codes of `scale` (negative to negate) to `output`."""
    m, shift = numerics.multiplier(scale / output.scale, where)
    return Rescale(m, shift, lo, hi)
