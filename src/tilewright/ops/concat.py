"""Concat along any axis, each input brought to the output's scale.

y[.., offset_k + i, ..] = sat(R24(x_k[.., i, ..] - z_k; s_k/sy) + zy)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, Encoding, TensorType, attribute
from tilewright.ops import constant
from tilewright.ops.builder import Builder, Operand, Permutation
from tilewright.ops.copying import Strided, copies, rescale_between, rescaled
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_int,
    shape_of,
)
from tilewright.ops.protocol import NpuOperator, Region, Span, Split, Tile, region_shape
from tilewright.program.isa import Instruction

ONNX = ("Concat",)
KINDS = ("Concat",)
TYPES = "u8, s8, s16"
LIMITS = "any axis, any number of inputs, constant ones among them"


@dataclass(frozen=True, eq=False)
class Concat(NpuOperator):
    """Inputs one after another along a stored axis."""

    CODE = 23
    axis: int = attribute("stored axis")
    multipliers: tuple[int, ...] = attribute("multiplier of R24 for each input", count=-1)
    shifts: tuple[int, ...] = attribute("shift of R24 for each input", count=-1)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        first = inputs[0].shape
        rest = {(*x.shape[: self.axis], *x.shape[self.axis + 1 :]) for x in inputs}
        if len(rest) != 1 or not len(inputs) == len(self.multipliers) == len(self.shifts):
            raise QuantizationError(f"{where}: its inputs {[x.shape for x in inputs]} do not fit")
        total = sum(x.shape[self.axis] for x in inputs)
        return ((*first[: self.axis], total, *first[self.axis + 1 :]),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        parts = [
            rescaled(x, t.encoding, out[0].encoding, m, s)
            for x, t, m, s in zip(inputs, types, self.multipliers, self.shifts, strict=True)
        ]
        return [np.concatenate(parts, axis=self.axis)]

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        """The joined axis last: tiles that take a part of every input are the better balanced."""
        others = [Split(a) for a in range(len(output.shape)) if a != self.axis]
        return (*others, Split(self.axis))

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        """The part of each input inside `region`; one element of an input that lies outside."""
        parts = self._parts(region, [x.shape[self.axis] for x in inputs])
        return tuple(
            tuple(Span(s.start, s.start + 1) for s in self._with(region, Span(0, 1)))
            if part.size == 0
            else self._with(region, part)
            for part in parts
        )

    def _parts(self, region: Region, sizes: Sequence[int]) -> list[Span]:
        """The span of each input, along the joined axis, that `region` takes; maybe empty."""
        span = region[self.axis]
        offsets = itertools.accumulate(sizes, initial=0)
        return [
            Span(
                min(max(span.start - offset, 0), size),
                max(min(span.stop - offset, size), min(max(span.start - offset, 0), size)),
            )
            for offset, size in zip(offsets, sizes, strict=False)
        ]

    def _with(self, region: Region, span: Span) -> Region:
        return (*region[: self.axis], span, *region[self.axis + 1 :])

    def emit(self, tile: Tile) -> list[Instruction]:
        sizes = [v.type.shape[self.axis] for v in tile.inputs]
        parts = self._parts(tile.region, sizes)
        offsets = itertools.accumulate(sizes, initial=0)
        instructions: list[Instruction] = []
        for view, part, offset, m, shift in zip(
            tile.inputs, parts, offsets, self.multipliers, self.shifts, strict=False
        ):
            if part.size == 0:
                continue
            source = self._with(tile.region, part)
            target = self._with(tile.region, Span(part.start + offset, part.stop + offset))
            instructions += copies(
                region_shape(source),
                Strided(view.origin(source), view.strides, view.type),
                Strided(tile.output.origin(target), tile.output.strides, tile.output.type),
                m,
                shift,
            )
        return instructions


OPERATORS = (Concat,)


@dataclass(frozen=True)
class ConcatPattern:
    """`values` one after another along ONNX `axis`; some may be constant."""

    axis: int
    values: tuple[ir.Value, ...]


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Concat of tensors, constant ones among them."""
    values = tuple(v for v in node.inputs if v is not None)
    axis = attribute_int(node, "axis") % len(shape_of(node.outputs[0]))
    inputs = tuple(dict.fromkeys(v for v in values if graph.constant(v) is None))
    pattern = ConcatPattern(axis, values)
    return Site("Concat", (node,), inputs, tuple(node.outputs), pattern, rule=ScaleRule.SHARED)


def bind(site: Site, builder: Builder) -> None:
    """Concat in the layout that moves the fewest elements; constants take the output's encoding."""
    pattern: ConcatPattern = site.pattern
    value = site.outputs[0]
    encoding = builder.encoding(value)
    permutation = cheapest_layout([builder.operand(v) for v in site.inputs])
    operands = [_operand(builder, v, permutation, encoding) for v in pattern.values]
    pairs = [rescale_between(x.type.encoding, encoding, site.name) for x in operands]
    op = Concat(
        permutation.index(pattern.axis), tuple(p.m for p in pairs), tuple(p.shift for p in pairs)
    )
    builder.add(op, operands, encoding, permutation, value)


def _operand(
    builder: Builder, value: ir.Value, permutation: Permutation, encoding: Encoding
) -> Operand:
    array = builder.float_graph.constant(value)
    if array is None:
        return builder.operand(value, permutation)
    return constant.encoded(builder, array.transpose(permutation), encoding, permutation)


def cheapest_layout(operands: Sequence[Operand]) -> Permutation:
    """The stored order of one of `operands` that the fewest elements must be moved into."""

    def moved(permutation: Permutation) -> int:
        return sum(math.prod(x.type.shape) for x in operands if x.permutation != permutation)

    return min((x.permutation for x in operands), key=moved)
