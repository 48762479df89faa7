"""Pad with a constant, or by repeating, reflecting or wrapping the border; negative pads cut.

y[i0, ..] = x[i0 - before[0], ..] where that lies inside the input, else the pad's code
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.concat import Concat
from tilewright.ops.copying import (
    UNIT,
    Movement,
    Strided,
    copies,
    fills,
    rescale_between,
    rescaled,
)
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, attribute_string, shape_of
from tilewright.ops.protocol import Region, Span, Tile, region_shape
from tilewright.ops.slicing import Cut, requantized, sliced
from tilewright.program.isa import Instruction

ONNX = ("Pad",)
KINDS = ("Pad",)
TYPES = "u8, s8, s16"
LIMITS = "constant pads of either sign; edge, reflect and wrap within the input's extent"


@dataclass(frozen=True, eq=False)
class Pad(Movement):
    """A tensor inside a larger box of one code; negative pads cut it."""

    CODE = 25
    before: tuple[int, ...] = attribute("elements in front of each axis", count=-1)
    after: tuple[int, ...] = attribute("elements behind each axis", count=-1)
    value: int = attribute("code of the pad, in the output's encoding")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        shape = tuple(
            n + b + a for n, b, a in zip(inputs[0].shape, self.before, self.after, strict=True)
        )
        if min(shape) < 1:
            raise QuantizationError(f"{where}: its pads leave nothing of its input")
        return (shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        y = np.full(yt.shape, self.value, yt.dtype.numpy)
        inner = self._inside(tuple(Span(0, n) for n in yt.shape), xt)
        if inner is not None:
            part = x[tuple(slice(*s) for s in self._source(inner))]
            y[tuple(slice(*s) for s in inner)] = rescaled(
                part, xt.encoding, yt.encoding, self.multiplier, self.shift
            )
        return [y]

    def _inside(self, region: Region, x: TensorType) -> Region | None:
        """The part of an output region that comes from the input."""
        inner = tuple(
            Span(max(s.start, b), min(s.stop, b + n))
            for s, b, n in zip(region, self.before, x.shape, strict=True)
        )
        return inner if all(s.size > 0 for s in inner) else None

    def _source(self, inner: Region) -> Region:
        return tuple(Span(s.start - b, s.stop - b) for s, b in zip(inner, self.before, strict=True))

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        """The input part of `region`; one element where `region` is all padding."""
        inner = self._inside(region, inputs[0])
        if inner is None:
            return (tuple(Span(0, 1) for _ in region),)
        return (self._source(inner),)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        inner = self._inside(tile.region, view.type)
        if inner is None:
            return self._fill(tile, tile.region)
        instructions = [i for part in _around(tile.region, inner) for i in self._fill(tile, part)]
        instructions += copies(
            region_shape(inner),
            Strided(view.origin(self._source(inner)), view.strides, view.type),
            Strided(tile.output.origin(inner), tile.output.strides, tile.output.type),
            self.multiplier,
            self.shift,
        )
        return instructions

    def _fill(self, tile: Tile, part: Region) -> list[Instruction]:
        y = tile.output
        return fills(region_shape(part), Strided(y.origin(part), y.strides, y.type), self.value)


def _around(region: Region, inner: Region) -> list[Region]:
    """`region` without `inner`, as boxes that do not overlap."""
    return [
        (*inner[:axis], span, *region[axis + 1 :])
        for axis, (outer, core) in enumerate(zip(region, inner, strict=True))
        for span in (Span(outer.start, core.start), Span(core.stop, outer.stop))
        if span.size > 0
    ]


OPERATORS = (Pad,)


@dataclass(frozen=True)
class PadPattern:
    """Pads of each ONNX axis, the mode and, for constant mode, the real value."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str
    value: float


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Pad with constant operands."""
    x, pads, value, axes = (*node.inputs, None, None)[:4]
    assert x is not None
    amounts, numbers, given = graph.constant(pads), graph.constant(value), graph.constant(axes)
    if amounts is None or (axes is not None and given is None):
        return Refusal("its pads are computed at run time")
    if value is not None and numbers is None:
        return Refusal("its value is computed at run time")
    shape = shape_of(x)
    order = range(len(shape)) if given is None else [int(a) % len(shape) for a in given]
    before, after = [0] * len(shape), [0] * len(shape)
    for k, axis in enumerate(order):
        before[axis], after[axis] = int(amounts[k]), int(amounts[k + len(order)])
    mode = attribute_string(node, "mode", "constant")
    reason = _border_limit(mode, shape, (*before, *after))
    if reason is not None:
        return Refusal(reason)
    real = 0.0 if numbers is None else float(numbers.reshape(()))
    pattern = PadPattern(tuple(before), tuple(after), mode, real)
    return Site("Pad", (node,), (x,), (node.outputs[0],), pattern, rule=ScaleRule.PASSED)


def _border_limit(mode: str, shape: Sequence[int], pads: Sequence[int]) -> str | None:
    """Why a mode other than constant does not take these pads."""
    if mode == "constant":
        return None
    if min(pads) < 0:
        return f"its pads are negative in {mode} mode"
    extents = {"reflect": [n - 1 for n in shape], "wrap": shape}.get(mode)
    if extents is not None and any(p > n for p, n in zip(pads, [*extents] * 2, strict=True)):
        return f"its pads are larger than the input in {mode} mode"
    return None


def bind(site: Site, builder: Builder) -> None:
    """Pad in the input's layout; the border modes join slices of the input."""
    pattern: PadPattern = site.pattern
    x, value = builder.operand(site.inputs[0]), site.outputs[0]
    encoding = builder.passed_encoding(value, x)
    if pattern.mode != "constant":
        joined = _with_borders(builder, x, pattern, site.name)
        requantized(builder, joined, encoding, site.name, value)
        return
    if not any((*pattern.before, *pattern.after)):
        requantized(builder, x, encoding, site.name, value)
        return
    code = numerics.constant_code(
        pattern.value, encoding.scale, encoding.zero_point, *encoding.dtype.range
    )
    before = tuple(pattern.before[p] for p in x.permutation)
    after = tuple(pattern.after[p] for p in x.permutation)
    op = Pad(*rescale_between(x.type.encoding, encoding, site.name), before, after, code)
    builder.add(op, [x], encoding, x.permutation, value)


def _with_borders(builder: Builder, x: Operand, pattern: PadPattern, where: str) -> Operand:
    for axis, (before, after) in enumerate(zip(pattern.before, pattern.after, strict=True)):
        n = x.type.shape[x.axis(axis)]
        front, back = _borders(pattern.mode, axis, n, before, after)
        cuts = [cut for cut in (front, None, back) if cut is None or cut.size > 0]
        if len(cuts) == 1:
            continue
        parts = [
            x if cut is None else sliced(builder, x, [cut], x.type.encoding, where) for cut in cuts
        ]
        units = (UNIT.m,) * len(parts), (UNIT.shift,) * len(parts)
        op = Concat(x.axis(axis), *units)
        x = builder.add(op, parts, x.type.encoding, x.permutation)
    return x


def _borders(mode: str, axis: int, n: int, before: int, after: int) -> tuple[Cut, Cut]:
    """What stands before and after an axis of `n` elements."""
    match mode:
        case "reflect":
            return Cut(axis, before, -1, before), Cut(axis, n - 2, -1, after)
        case "wrap":
            return Cut(axis, n - before, 1, before), Cut(axis, 0, 1, after)
        case _:
            return Cut(axis, 0, 0, before), Cut(axis, n - 1, 0, after)
