"""PRelu: a slope for each channel below zero; LeakyRelu of 16-bit tensors takes this form too.

d = x - zx;  y = sat((d >= 0 ? R24(d; sx/sy) : sign(a) * R24(d; |a|*sx/sy)) + zy)

(section 7 of the arithmetic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, Encoding, TensorType, attribute, constant
from tilewright.ops import channelwise, elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.product import channel_records
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile, region_shape
from tilewright.program import isa

ONNX = ("PRelu",)
KINDS = ("ParametricRelu",)
TYPES = "u8, s8, s16"
LIMITS = "slope constant: a scalar or a vector along one axis"


@dataclass(frozen=True, eq=False)
class ParametricRelu(NpuOperator):
    """Two rescales, chosen by the sign of the centred input; channels are the last stored axis."""

    CODE = 11
    multiplier: int = attribute("multiplier of R24 for d >= 0")
    shift: int = attribute("shift of R24 for d >= 0")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")
    channels: Array = constant(
        "R24 of each channel for d < 0 (signed multiplier); bias zero, clamp as above",
        axes=("channels",),
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        elementwise.require_activations(inputs, where)
        if len(self.channels) != x.shape[-1]:
            raise QuantizationError(
                f"{where}: {len(self.channels)} slopes do not fit {x.shape[-1]} channels"
            )
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        d = inputs[0].astype(np.int64) - types[0].zero_point
        above = numerics.r24(d, self.multiplier, self.shift)
        below = numerics.r24(d, self.channels["multiplier"], self.channels["shift"])
        y = np.where(d >= 0, above, below) + out[0].zero_point
        return [numerics.saturate(y, self.lo, self.hi).astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return (region,)

    def constant_rows(self, name: str, region: Region) -> Span:
        return region[-1]

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        *lead, count = region_shape(tile.region)
        strides = [view.strides[:-1], tile.output.strides[:-1]]
        return [
            isa.ParametricRelu(
                x=x + box.offsets[0],
                y=y + box.offsets[1],
                channels=tile.constants["channels"],
                shape=(*box.shape, count),
                x_strides=(*box.strides[0], view.strides[-1]),
                y_strides=(*box.strides[1], tile.output.strides[-1]),
                types=(view.type.dtype, tile.output.type.dtype),
                zeros=(view.type.zero_point, tile.output.type.zero_point),
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(lead, strides, 3)
        ]


OPERATORS = (ParametricRelu,)


@dataclass(frozen=True)
class ParametricReluPattern:
    """Shape-level PRelu; `slope` is float64, a vector along ONNX axis `axis` or one number."""

    slope: Array
    axis: int | None
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A PRelu node with a constant slope and the clamps behind it."""
    x, slope = node.inputs
    assert x is not None
    array = graph.constant(slope)
    if array is None:
        return Refusal("its slope is computed at run time")
    shape = shape_of(node.outputs[0])
    axes = elementwise.varying_axes(array, len(shape))
    if len(axes) > 1 or shape != shape_of(x):
        return Refusal("its slope differs along more than one axis")
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    pattern = ParametricReluPattern(
        array.astype(np.float64).reshape(-1), axes[0] if axes else None, activation
    )
    nodes = (node, *activation.nodes)
    return Site("ParametricRelu", nodes, (x,), (activation.output,), pattern)


def bind(site: Site, builder: Builder) -> None:
    """The operand with the slopes' axis last."""
    pattern: ParametricReluPattern = site.pattern
    value = pattern.activation.output
    output = builder.encoding(value)
    x = (
        builder.operand(site.inputs[0])
        if pattern.axis is None
        else channelwise.operand(builder, site.inputs[0], pattern.axis)
    )
    limits = clamp_pair(pattern.activation, output)
    op = parametric(pattern.slope, x, output, limits, site.name)
    builder.add(op, [x], output, x.permutation, value)


def parametric(
    slope: Array, x: Operand, output: Encoding, limits: tuple[int, int], where: str
) -> ParametricRelu:
    """The operator of slopes [1] or [C], C being the last stored axis of `x`."""
    count = x.type.shape[-1]
    ratio = x.type.scale / output.scale
    m, shift = numerics.multiplier(ratio, where)
    below = [float(a) * x.type.scale / output.scale for a in np.broadcast_to(slope, count)]
    ms, shifts = numerics.multipliers(below, where)
    lo, hi = (np.full(count, v, np.int64) for v in limits)
    records = channel_records(np.zeros(count, np.int64), ms, shifts, lo, hi)
    return ParametricRelu(m, shift, *limits, records)
