"""Softmax over one axis, stored last.

d = max(q) - q,  E = 2**(23 - d*c) by table and shift,  p = E * (2**53 // sum E) in Q24,
y = sat(R24(p; 2**-24/sy) + zy)

(section 11 of the arithmetic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops import elementwise
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, attribute_int, shape_of
from tilewright.ops.protocol import NpuOperator, Region, Span, Split, Tile, region_shape
from tilewright.program import isa

ONNX = ("Softmax",)
KINDS = ("Softmax",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = "any axis of up to 2**20 elements"

LONGEST = 2**20
"""Elements along the axis, so that the sum of exponentials fits."""


@dataclass(frozen=True, eq=False)
class Softmax(NpuOperator):
    """Softmax over the last stored axis."""

    CODE = 13
    exponent_multiplier: int = attribute("multiplier of the exponent's R24")
    exponent_shift: int = attribute("shift of the exponent's R24")
    multiplier: int = attribute("multiplier of the output's R24")
    shift: int = attribute("shift of the output's R24")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        elementwise.require_activations(inputs, where)
        if x.shape[-1] > LONGEST:
            raise QuantizationError(f"{where}: Softmax over {x.shape[-1]} elements")
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        exponent = numerics.Multiplier(self.exponent_multiplier, self.exponent_shift)
        p = numerics.softmax_probabilities(inputs[0], exponent)
        y = numerics.r24(p, self.multiplier, self.shift) + out[0].zero_point
        return [numerics.saturate(y, *out[0].dtype.range).astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return ((*region[:-1], Span(0, output.shape[-1])),)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return tuple(Split(axis) for axis in range(len(output.shape) - 1))

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        *lead, n = region_shape(tile.region)
        strides = [view.strides[:-1], tile.output.strides[:-1]]
        return [
            isa.Softmax(
                x=x + box.offsets[0],
                y=y + box.offsets[1],
                shape=(*box.shape, n),
                x_strides=(*box.strides[0], view.strides[-1]),
                y_strides=(*box.strides[1], tile.output.strides[-1]),
                types=(view.type.dtype, tile.output.type.dtype),
                output_zero=tile.output.type.zero_point,
                exponent_multiplier=self.exponent_multiplier,
                exponent_shift=self.exponent_shift,
                multiplier=self.multiplier,
                shift=self.shift,
            )
            for box in elementwise.boxes(lead, strides, 2)
        ]


OPERATORS = (Softmax,)


@dataclass(frozen=True)
class SoftmaxPattern:
    """Shape-level Softmax over ONNX axis `axis`."""

    axis: int


def match(node: ir.Node, _graph: FloatGraph) -> Site | Refusal | None:
    """A Softmax node with the meaning of opset 13 and later."""
    (x,) = node.inputs
    assert x is not None
    shape = shape_of(x)
    axis = attribute_int(node, "axis", -1) % len(shape)
    if shape[axis] > LONGEST:
        return Refusal(f"it runs over {shape[axis]} elements; up to {LONGEST} are supported")
    pattern = SoftmaxPattern(axis)
    return Site(
        "Softmax", (node,), (x,), tuple(node.outputs), pattern,
        rule=ScaleRule.FIXED, fixed=(0.0, 1.0),
    )  # fmt: skip


def bind(site: Site, builder: Builder) -> None:
    """The operand with the axis last, the others in the order in which they are stored."""
    pattern: SoftmaxPattern = site.pattern
    (value,) = site.outputs
    layout = builder.operand(site.inputs[0]).permutation
    layout = (*(a for a in layout if a != pattern.axis), pattern.axis)
    x = builder.operand(site.inputs[0], layout)
    output = builder.encoding(value)
    exponent = numerics.softmax_multiplier(x.type.scale)
    m, shift = numerics.multiplier(2.0**-24 / output.scale, site.name)
    op = Softmax(exponent.m, exponent.shift, m, shift)
    builder.add(op, [x], output, layout, value)
