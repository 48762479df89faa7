"""Slice, Split and Gather of an arithmetic progression: strided parts of a tensor.

y[i0, i1, ...] = x[starts[0] + i0*steps[0], starts[1] + i1*steps[1], ...]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, Encoding, TensorType, attribute
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.copying import (
    Movement,
    Strided,
    copies,
    rescale_between,
    rescaled,
)
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, attribute_int, shape_of
from tilewright.ops.protocol import Region, Span, Tile, region_shape
from tilewright.ops.reshape import Reshape
from tilewright.program.isa import Instruction

ONNX = ("Slice", "Split", "Gather")
KINDS = ("Slice", "Split")
TYPES = "u8, s8, s16"
LIMITS = "constant bounds, any axes and steps; Gather: constant indices with one step between them"


@dataclass(frozen=True, eq=False)
class Slice(Movement):
    """A strided part of a tensor; as a whole tensor it is a change of encoding."""

    CODE = 24
    starts: tuple[int, ...] = attribute("input index of output index 0, for each axis", count=-1)
    steps: tuple[int, ...] = attribute(
        "input indices from one output index to the next; negative reverses, 0 repeats", count=-1
    )
    sizes: tuple[int, ...] = attribute("extent of each output axis", count=-1)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        whole = tuple(Span(0, n) for n in self.sizes)
        if len(self.sizes) != len(x.shape) or any(
            s.start < 0 or s.stop > n for s, n in zip(self._source(whole), x.shape, strict=True)
        ):
            raise QuantizationError(f"{where}: its slice leaves its input {x.shape}")
        return (self.sizes,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        indices = [
            start + step * np.arange(size)
            for start, step, size in zip(self.starts, self.steps, self.sizes, strict=True)
        ]
        part = inputs[0][np.ix_(*indices)] if indices else inputs[0]
        return [rescaled(part, types[0].encoding, out[0].encoding, self.multiplier, self.shift)]

    def _source(self, region: Region) -> Region:
        ends = [
            sorted((start + step * span.start, start + step * (span.stop - 1)))
            for start, step, span in zip(self.starts, self.steps, region, strict=True)
        ]
        return tuple(Span(first, last + 1) for first, last in ends)

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return (self._source(region),)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        corner = [
            start + step * span.start
            for start, step, span in zip(self.starts, self.steps, tile.region, strict=True)
        ]
        strides = [s * step for s, step in zip(view.strides, self.steps, strict=True)]
        return copies(
            region_shape(tile.region),
            Strided(view.at(corner), strides, view.type),
            Strided(tile.output.origin(tile.region), tile.output.strides, tile.output.type),
            self.multiplier,
            self.shift,
        )


OPERATORS = (Slice,)


@dataclass(frozen=True)
class Cut:
    """`size` indices of one axis, from `start` on, `step` apart."""

    axis: int
    start: int
    step: int
    size: int


@dataclass(frozen=True)
class SlicePattern:
    """What each output takes.

    Args:
        cuts: for each output, the ONNX axes that are cut.
        drops: the axis of extent 1 that vanishes, for Gather with a scalar index.
    """

    cuts: tuple[tuple[Cut, ...], ...]
    drops: int | None = None


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """Slice, Split, or Gather with constant operands."""
    (x, *operands) = node.inputs
    assert x is not None
    arrays = [graph.constant(v) for v in operands]
    if any(v is not None and a is None for v, a in zip(operands, arrays, strict=True)):
        return Refusal(f"its {_OPERANDS[node.op_type]} are computed at run time")
    if graph.constant(x) is not None:
        return Refusal("its data are constant")
    lists = [None if a is None else [int(v) for v in a.reshape(-1)] for a in arrays]
    shape = shape_of(x)
    match node.op_type:
        case "Slice":
            pattern = SlicePattern((_slice_cuts(shape, lists),))
        case "Split":
            pattern = SlicePattern(_split_cuts(node))
        case "Gather":
            assert arrays[0] is not None
            gathered = _gather(node, shape, arrays[0])
            if isinstance(gathered, Refusal):
                return gathered
            pattern = gathered
        case _:
            return None
    kind = "Split" if node.op_type == "Split" else "Slice"
    return Site(kind, (node,), (x,), tuple(node.outputs), pattern, rule=ScaleRule.PASSED)


_OPERANDS = {"Slice": "bounds", "Split": "lengths", "Gather": "indices"}


def _slice_cuts(shape: tuple[int, ...], operands: list[list[int] | None]) -> tuple[Cut, ...]:
    starts, ends, axes, steps = [*operands, None, None][:4]
    assert starts is not None and ends is not None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    cuts = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Python's own clamping of slice bounds is that of ONNX.
        indices = range(*slice(start, end, step).indices(shape[axis]))
        cuts.append(Cut(axis % len(shape), indices.start, step, len(indices)))
    return tuple(cuts)


def _split_cuts(node: ir.Node) -> tuple[tuple[Cut, ...], ...]:
    axis = attribute_int(node, "axis", 0)
    sizes = [shape_of(o)[axis] for o in node.outputs]
    starts = np.cumsum([0, *sizes[:-1]])
    rank = len(shape_of(node.outputs[0]))
    return tuple(
        (Cut(axis % rank, int(start), 1, size),) for start, size in zip(starts, sizes, strict=True)
    )


def _gather(node: ir.Node, shape: tuple[int, ...], indices: Array) -> SlicePattern | Refusal:
    axis = attribute_int(node, "axis", 0) % len(shape)
    if indices.ndim > 1:
        return Refusal(f"its indices have {indices.ndim} axes; a scalar or a list is supported")
    chosen = [int(i) % shape[axis] for i in indices.reshape(-1)]
    steps = {b - a for a, b in itertools.pairwise(chosen)} or {1}
    if len(steps) != 1:
        return Refusal("its indices are not evenly spaced")
    cut = Cut(axis, chosen[0], steps.pop(), len(chosen))
    return SlicePattern(((cut,),), drops=axis if indices.ndim == 0 else None)


def bind(site: Site, builder: Builder) -> None:
    """One Slice for each output that is read, in the layout of the input."""
    pattern: SlicePattern = site.pattern
    x = builder.operand(site.inputs[0])
    for value, cuts in zip(site.outputs, pattern.cuts, strict=True):
        if not value.uses() and not value.is_graph_output():
            continue
        encoding = builder.passed_encoding(value, x)
        if pattern.drops is None:
            sliced(builder, x, cuts, encoding, site.name, value)
        else:
            part = sliced(builder, x, cuts, encoding, site.name)
            _drop_axis(builder, part, pattern.drops, value)


def sliced(
    builder: Builder,
    x: Operand,
    cuts: Sequence[Cut],
    encoding: Encoding,
    where: str,
    value: ir.Value | None = None,
) -> Operand:
    """The part of `x` that `cuts` leave, under `encoding`; `x` itself if that is the same."""
    starts, steps, sizes = [0] * len(x.type.shape), [1] * len(x.type.shape), [*x.type.shape]
    for cut in cuts:
        at = x.axis(cut.axis)
        starts[at], steps[at], sizes[at] = cut.start, cut.step, cut.size
    everything = [list(range(n)) for n in x.type.shape]
    taken = [
        [start + step * i for i in range(size)]
        for start, step, size in zip(starts, steps, sizes, strict=True)
    ]
    if taken == everything and encoding == x.type.encoding:
        if value is not None:
            builder.alias(value, x)
        return x
    m, shift = rescale_between(x.type.encoding, encoding, where)
    op = Slice(m, shift, tuple(starts), tuple(steps), tuple(sizes))
    return builder.add(op, [x], encoding, x.permutation, value)


def requantized(
    builder: Builder, x: Operand, encoding: Encoding, where: str, value: ir.Value | None = None
) -> Operand:
    """The same tensor under another encoding."""
    return sliced(builder, x, (), encoding, where, value)


def _drop_axis(builder: Builder, part: Operand, axis: int, value: ir.Value) -> None:
    shape = list(part.type.shape)
    del shape[part.axis(axis)]
    permutation = tuple(p - (p > axis) for p in part.permutation if p != axis)
    builder.add(Reshape(tuple(shape)), [part], part.type.encoding, permutation, value)
