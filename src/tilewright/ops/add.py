"""Add and Sub: of two run-time tensors with one common shift, or of a constant.

y = sat(((ma*(a-za) + mb*(b-zb) + 2**(s-1)) >> s) + zy)           mb < 0 subtracts
y = sat(((ma*(a-za) + c + 2**(s-1)) >> s) + zy)                   c exact to 2**-s output steps

(section 5 of the arithmetic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute, constant
from tilewright.ops import elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile, region_shape
from tilewright.program import isa

ONNX = ("Add", "Sub")
KINDS = ("Add",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = "any broadcasting; either operand may be constant; Relu and Clip fuse behind it"

SUM_LIMIT = 2**62
"""Bound of the 64-bit sum, rounding constant included."""


@dataclass(frozen=True, eq=False)
class Add(NpuOperator):
    """Sum or difference of two tensors of one rank."""

    CODE = 6
    ma: int = attribute("multiplier of a")
    mb: int = attribute("multiplier of b; negative to subtract")
    shift: int = attribute("common shift")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        a, b = inputs
        elementwise.require_activations(inputs, where)
        _require_sum(abs(self.ma) * a.reach + abs(self.mb) * b.reach, self.shift, where)
        return (elementwise.broadcast_shape([a.shape, b.shape], where),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (a, b), (at, bt), (yt,) = inputs, types, out
        total = self.ma * (a.astype(np.int64) - at.zero_point)
        total = total + self.mb * (b.astype(np.int64) - bt.zero_point)
        return [_rounded(total, self.shift, self.lo, self.hi, yt)]

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
            isa.Add(
                a=bases[0] + box.offsets[0],
                b=bases[1] + box.offsets[1],
                y=bases[2] + box.offsets[2],
                shape=box.shape,
                a_strides=box.strides[0],
                b_strides=box.strides[1],
                y_strides=box.strides[2],
                types=(a.type.dtype, b.type.dtype, tile.output.type.dtype),
                zeros=(a.type.zero_point, b.type.zero_point, tile.output.type.zero_point),
                ma=self.ma,
                mb=self.mb,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 4)
        ]


@dataclass(frozen=True, eq=False)
class AddConstant(NpuOperator):
    """Sum of a tensor and constants of the same rank."""

    CODE = 7
    ma: int = attribute("multiplier of a; negative to subtract it from the constant")
    shift: int = attribute("common shift")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")
    c: Array = constant("s64 words, output steps times 2**shift", axes=("stored axes of the sum",))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (a,) = inputs
        elementwise.require_activations(inputs, where)
        if self.c.ndim != len(a.shape):
            raise QuantizationError(f"{where}: constants {self.c.shape} do not fit {a.shape}")
        reach = max(abs(int(self.c.max())), abs(int(self.c.min())))
        _require_sum(abs(self.ma) * a.reach + reach, self.shift, where)
        return (elementwise.broadcast_shape([a.shape, self.c.shape], where),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (a,), (at,), (yt,) = inputs, types, out
        total = self.ma * (a.astype(np.int64) - at.zero_point) + self.c.astype(np.int64)
        return [_rounded(total, self.shift, self.lo, self.hi, yt)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return elementwise.broadcast_needs(region, [x.shape for x in inputs])

    def constant_rows(self, name: str, region: Region) -> Span:
        return Span(0, 1) if len(self.c) == 1 else region[0]

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (a,) = tile.inputs
        (need,) = self.needs(tile.region, [a.type], tile.output.type)
        c_strides = tuple(
            0 if n == 1 else s
            for n, s in zip(self.c.shape, elementwise.word_strides(self.c), strict=True)
        )
        inner = sum(
            stride * span.start for stride, span in zip(c_strides[1:], tile.region[1:], strict=True)
        )
        bases = (
            a.origin(need),
            tile.constants["c"] + inner,
            tile.output.origin(tile.region),
        )
        strides = [elementwise.broadcast_strides(a), c_strides, tile.output.strides]
        return [
            isa.AddConstant(
                a=bases[0] + box.offsets[0],
                c=bases[1] + box.offsets[1],
                y=bases[2] + box.offsets[2],
                shape=box.shape,
                a_strides=box.strides[0],
                c_strides=box.strides[1],
                y_strides=box.strides[2],
                types=(a.type.dtype, tile.output.type.dtype),
                zeros=(a.type.zero_point, tile.output.type.zero_point),
                ma=self.ma,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 4)
        ]


OPERATORS = (Add, AddConstant)


def _require_sum(bound: int, shift: int, where: str) -> None:
    if bound + 2**shift >= SUM_LIMIT:
        raise QuantizationError(f"{where}: its sum can reach {bound}, more than 62 bits")


def _rounded(total: Array, shift: int, lo: int, hi: int, out: TensorType) -> Array:
    y = ((total + (1 << (shift - 1))) >> shift) + out.zero_point
    return numerics.saturate(y, lo, hi).astype(out.dtype.numpy)


@dataclass(frozen=True)
class AddPattern:
    """Shape-level sum.

    Args:
        signs: of the first and second term.
        constant: the second term where it is constant, float64.
    """

    signs: tuple[int, int]
    constant: Array | None
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """An Add or Sub node and the clamps behind it."""
    a, b = node.inputs
    assert a is not None and b is not None
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    sign = -1 if node.op_type == "Sub" else 1
    left, right = graph.constant(a), graph.constant(b)
    inputs: tuple[ir.Value, ...] = (a, b)
    if right is not None:
        inputs, pattern = (a,), AddPattern((1, sign), right.astype(np.float64), activation)
    elif left is not None:
        inputs, pattern = (b,), AddPattern((sign, 1), left.astype(np.float64), activation)
    else:
        pattern = AddPattern((1, sign), None, activation)
    nodes = (node, *activation.nodes)
    return Site("Add", nodes, inputs, (activation.output,), pattern)


def bind(site: Site, builder: Builder) -> None:
    """Both operands in the layout of the larger one; the result keeps it."""
    pattern: AddPattern = site.pattern
    value = pattern.activation.output
    output = builder.encoding(value)
    operands = elementwise.aligned(builder, site.inputs, len(shape_of(value)))
    wide = DType.S16 in (output.dtype, *(o.type.dtype for o in operands))
    lo, hi = clamp_pair(pattern.activation, output)
    first = operands[0]
    op: NpuOperator
    if pattern.constant is None:
        scales = [o.type.scale for o in operands]
        p = numerics.add_parameters(scales[0], scales[1], output.scale, wide, site.name)
        op = Add(pattern.signs[0] * p.ma, pattern.signs[1] * p.mb, p.shift, lo, hi)
    else:
        values = elementwise.stored_constant(pattern.signs[1] * pattern.constant, first.permutation)
        ma, c, shift = numerics.add_constant_parameters(
            first.type.scale, output.scale, values, wide, output.dtype is DType.S16, site.name
        )
        op = AddConstant(pattern.signs[0] * ma, shift, lo, hi, c)
    builder.add(op, operands, output, first.permutation, value)
