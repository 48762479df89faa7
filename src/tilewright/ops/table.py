"""Functions of one variable by table.

8-bit input:   y = T[q], 256 entries
16-bit input:  y = sat(R24(128*T[i] + (T[i+1]-T[i])*frac) + zy), 513 entries,
               q = 128*i - 32768 + frac

(section 7 of the arithmetic).  Clamps behind a table are part of its entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute, constant
from tilewright.ops import elementwise, functions, prelu
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair, unclamped
from tilewright.ops.builder import Builder
from tilewright.ops.functions import Unary, match_unary
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, attribute_float
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile, region_shape
from tilewright.program import isa

ONNX = (*functions.PLAIN, *functions.WITH_ATTRIBUTES, "Pow", "Div")
KINDS = ("Table",)
TYPES = "u8, s8, s16"
LIMITS = "constant attributes, exponent, dividend; 16-bit inputs where a table stays within 2 steps"


@dataclass(frozen=True, eq=False)
class Table(NpuOperator):
    """Any function of an 8-bit code."""

    CODE = 9
    table: Array = constant(
        "codes of the output's type, indexed by the input code minus its type's lowest",
        axes=("256",),
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        if not x.dtype.is_8_bit or self.table.shape != (256,):
            raise QuantizationError(f"{where}: a table of 256 entries takes 8-bit codes")
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        index = inputs[0].astype(np.int64) - types[0].dtype.range.lo
        return [self.table[index].astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return (region,)

    def constant_rows(self, name: str, region: Region) -> Span:
        return Span(0, 256)

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        strides = [view.strides, tile.output.strides]
        return [
            isa.Lookup8(
                x=x + box.offsets[0],
                y=y + box.offsets[1],
                table=tile.constants["table"],
                shape=box.shape,
                x_strides=box.strides[0],
                y_strides=box.strides[1],
                types=(view.type.dtype, tile.output.type.dtype),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 4)
        ]


@dataclass(frozen=True, eq=False)
class Table16(NpuOperator):
    """A function of an s16 code, linear between 513 entries."""

    CODE = 10
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")
    table: Array = constant("s16 entries at q = -32768 + 128*i", axes=("513",))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        elementwise.require_activations(inputs, where)
        if x.dtype is not DType.S16 or self.table.shape != (513,):
            raise QuantizationError(f"{where}: a table of 513 entries takes 16-bit codes")
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        table = numerics.Table16(self.table.astype(np.int64), self.multiplier, self.shift)
        y = numerics.interpolate16(inputs[0], table) + out[0].zero_point
        return [numerics.saturate(y, self.lo, self.hi).astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return (region,)

    def constant_rows(self, name: str, region: Region) -> Span:
        return Span(0, 513)

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        strides = [view.strides, tile.output.strides]
        return [
            isa.Lookup16(
                x=x + box.offsets[0],
                y=y + box.offsets[1],
                table=tile.constants["table"],
                shape=box.shape,
                x_strides=box.strides[0],
                y_strides=box.strides[1],
                output_type=tile.output.type.dtype,
                output_zero=tile.output.type.zero_point,
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes(region_shape(tile.region), strides, 4)
        ]


OPERATORS = (Table, Table16, prelu.ParametricRelu)


@dataclass(frozen=True)
class TablePattern:
    """Shape-level function."""

    unary: Unary
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """The function that starts at `node` and the clamps behind it."""
    unary = match_unary(node, graph)
    if unary is None:
        return Refusal("its exponent is computed at run time") if node.op_type == "Pow" else None
    known = graph.encoding(unary.input)
    if known is not None and known.dtype is DType.S16 and unary.name in functions.NOT_AT_16_BITS:
        return Refusal(f"its input has 16 bits, where {unary.name} has no integer form")
    bounded = unary.limits is not None
    activation = unclamped(unary.output) if bounded else absorb_clamps(unary.output, graph, None)
    return Site(
        "Table",
        (*unary.nodes, *activation.nodes),
        (unary.input,),
        (activation.output,),
        TablePattern(unary, activation),
        rule=ScaleRule.FIXED if bounded else ScaleRule.FREE,
        fixed=unary.limits,
    )


def bind(site: Site, builder: Builder) -> None:
    """The table of the input's type; LeakyRelu at 16 bits is exact without one."""
    pattern: TablePattern = site.pattern
    unary, value = pattern.unary, pattern.activation.output
    x = builder.operand(site.inputs[0])
    output = builder.encoding(value)
    lo, hi = clamp_pair(pattern.activation, output)
    op: NpuOperator
    if x.type.dtype.is_8_bit:
        entries = numerics.table8(
            unary.function, x.type.dtype.range, x.type.scale, x.type.zero_point,
            numerics.IntRange(lo, hi), output.scale, output.zero_point,
        )  # fmt: skip
        op = Table(entries.astype(output.dtype.numpy))
    elif unary.name == "LeakyRelu":
        slope = np.array([attribute_float(unary.nodes[0], "alpha", 0.01)])
        op = prelu.parametric(slope, x, output, (lo, hi), site.name)
    else:
        found = functions.tabulate16(unary, x.type.scale, output, site.name)
        op = Table16(found.m, found.shift, lo, hi, found.entries.astype(np.int16))
    builder.add(op, [x], output, x.permutation, value)
