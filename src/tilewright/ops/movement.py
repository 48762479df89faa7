"""Movement that only renames or permutes axes: Reshape and its kin, Transpose, Identity.

An ONNX Transpose moves nothing here: it changes which ONNX axis each stored axis holds.  A reshape
that cuts or joins neighbouring axes keeps the stored order too; only one that crosses the stored
order (flattening channels-last features, for instance) needs a permutation first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.builder import Builder, Operand, Permutation, channels_last, onnx_order
from tilewright.ops.copying import Strided, copies, passed_encoding
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_ints,
    shape_of,
)
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    View,
    region_shape,
    whole,
)
from tilewright.ops.slicing import requantized
from tilewright.program.isa import Instruction

ONNX = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose")
KINDS = ("Reshape", "Transpose", "Identity")
TYPES = "u8, s8, s16"
LIMITS = "static shapes; a Transpose only relabels axes, a Reshape moves data where it crosses them"


@dataclass(frozen=True, eq=False)
class Reshape(NpuOperator):
    """The same elements in the same stored order under another shape."""

    CODE = 2
    shape: tuple[int, ...] = attribute("stored shape of the output", count=-1)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        if inputs[0].elements != math.prod(self.shape):
            raise QuantizationError(f"{where}: {inputs[0].shape} cannot become {self.shape}")
        return (self.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        return [inputs[0].reshape(self.shape)]

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        """Only the outermost axis with more than one element: a part stays one run of elements.

        Where it leaves at least two parts, a cut falls between outermost slices of the input too.
        """
        outer = next((a for a, n in enumerate(output.shape) if n > 1), None)
        if outer is None:
            return ()
        run = math.prod(output.shape[outer + 1 :])
        first = next(a for a, n in enumerate(inputs[0].shape) if n > 1)
        step = math.lcm(run, math.prod(inputs[0].shape[first + 1 :])) // run
        return (Split(outer, step if step < output.shape[outer] else 1),)

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        start, stop = self._run(region)
        return (enclosing_box(inputs[0].shape, start, stop),)

    def _run(self, region: Region) -> tuple[int, int]:
        first = element_index([s.start for s in region], self.shape)
        last = element_index([s.stop - 1 for s in region], self.shape)
        return first, last + 1

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        instructions: list[Instruction] = []
        for piece in _pieces(view, tile.output, *self._run(tile.region)):
            size = view.type.dtype.bytes
            instructions += copies(
                (piece.count, piece.length),
                Strided(piece.x, (piece.x_step, size), view.type),
                Strided(piece.y, (piece.y_step, size), tile.output.type),
            )
        return instructions


def element_index(point: Sequence[int], shape: Sequence[int]) -> int:
    """The place of `point` in stored order."""
    index = 0
    for p, n in zip(point, shape, strict=True):
        index = index * n + p
    return index


def element_point(index: int, shape: Sequence[int]) -> list[int]:
    """The coordinates of element `index` in stored order."""
    point = []
    for n in reversed(shape):
        point.append(index % n)
        index //= n
    return point[::-1]


def enclosing_box(shape: Sequence[int], start: int, stop: int) -> Region:
    """The smallest box of full inner axes that holds elements [start, stop) in stored order."""
    first, last = element_point(start, shape), element_point(stop - 1, shape)
    box = list(whole(shape))
    for axis, (a, b) in enumerate(zip(first, last, strict=True)):
        box[axis] = Span(a, b + 1)
        if a != b:
            break
    return tuple(box)


@dataclass
class _Piece:
    """`count` runs of `length` elements, a constant number of bytes apart on both sides."""

    length: int
    x: int
    y: int
    count: int = 1
    x_step: int = 0
    y_step: int = 0

    def takes(self, length: int, x: int, y: int) -> bool:
        """Append the next run if it continues the pattern."""
        if length != self.length:
            return False
        if self.count == 1 and x > self.x and y > self.y:
            self.x_step, self.y_step = x - self.x, y - self.y
        if (x, y) != (self.x + self.count * self.x_step, self.y + self.count * self.y_step):
            return False
        self.count += 1
        return True


def _pieces(x: View, y: View, start: int, stop: int) -> Iterator[_Piece]:
    """Copies of elements [start, stop), cut where either side is not contiguous in SRAM."""
    unit = math.gcd(_contiguous(x), _contiguous(y))
    piece: _Piece | None = None
    at = start
    while at < stop:
        length = min((at // unit + 1) * unit, stop) - at
        x_at = x.at(element_point(at, x.type.shape))
        y_at = y.at(element_point(at, y.type.shape))
        if piece is None or not piece.takes(length, x_at, y_at):
            if piece is not None:
                yield piece
            piece = _Piece(length, x_at, y_at)
        at += length
    if piece is not None:
        yield piece


def _contiguous(view: View) -> int:
    """The largest `run` such that elements [k*run, (k+1)*run), where held, follow each other."""
    run = 1
    for n, span, stride in zip(
        reversed(view.type.shape), reversed(view.box), reversed(view.strides), strict=True
    ):
        if span.size > 1 and stride != run * view.type.dtype.bytes:
            break
        run *= n
    return run


@dataclass(frozen=True, eq=False)
class Transpose(NpuOperator):
    """`y[i0, i1, ...] = x` with output axis i taken from input axis `axes[i]`."""

    CODE = 3
    axes: tuple[int, ...] = attribute("input axis of each output axis", count=-1)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        return (tuple(inputs[0].shape[a] for a in self.axes),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        return [np.ascontiguousarray(inputs[0].transpose(self.axes))]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        box: list[Span] = [Span(0, 0)] * len(self.axes)
        for out_axis, in_axis in enumerate(self.axes):
            box[in_axis] = region[out_axis]
        return (tuple(box),)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        (need,) = self.needs(tile.region, [view.type], tile.output.type)
        return copies(
            region_shape(tile.region),
            Strided(view.origin(need), [view.strides[a] for a in self.axes], view.type),
            Strided(tile.output.origin(tile.region), tile.output.strides, tile.output.type),
        )


OPERATORS = (Reshape, Transpose)


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """Any of `ONNX`; the shape is that of the output, which the importer has made static."""
    x = node.inputs[0]
    assert x is not None
    if graph.constant(x) is not None:
        return Refusal("its data are constant")
    kind = node.op_type if node.op_type in KINDS else "Reshape"
    rank = len(shape_of(x))
    pattern = attribute_ints(node, "perm", onnx_order(rank)[::-1]) if kind == "Transpose" else None
    return Site(kind, (node,), (x,), (node.outputs[0],), pattern, rule=ScaleRule.PASSED)


def bind(site: Site, builder: Builder) -> None:
    """Relabel axes where that is enough, else permute and reshape."""
    x, value = builder.operand(site.inputs[0]), site.outputs[0]
    match site.kind:
        case "Transpose":
            permutation = tuple(site.pattern.index(p) for p in x.permutation)
            moved = Operand(x.name, x.type, permutation)
        case "Identity":
            moved = x
        case _:
            moved = _reshaped(builder, x, shape_of(site.inputs[0]), shape_of(value))
    requantized(builder, moved, passed_encoding(builder, value, x), site.name, value)


def _reshaped(
    builder: Builder, x: Operand, before: tuple[int, ...], after: tuple[int, ...]
) -> Operand:
    order, permutation = reshape_layout(before, x.permutation, after)
    moved = builder.permuted(x, order) if order != x.permutation else x
    shape = tuple(after[p] for p in permutation)
    if shape == moved.type.shape:
        return Operand(moved.name, moved.type, permutation)
    return builder.add(Reshape(shape), [moved], x.type.encoding, permutation)


def reshape_layout(
    before: Sequence[int], permutation: Permutation, after: Sequence[int]
) -> tuple[Permutation, Permutation]:
    """Stored orders that make a reshape free.

    The axes fall into groups of equal product.  Groups may stand in any stored order; within one,
    the input's axes must be neighbours in ONNX order.

    Args:
        before, after: ONNX shapes.
        permutation: stored order of the input.

    Returns:
        The stored order that the input must have (the one it has where possible) and the
        output's.
    """
    groups = _groups(before, after)
    groups.sort(key=lambda g: min(permutation.index(a) for a in g[0]))
    wanted = iter([a for inputs, _ in groups for a in inputs])
    order = tuple(a if before[a] == 1 else next(wanted) for a in permutation)
    return order, _completed([a for _, outputs in groups for a in outputs], after)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest pairing of axes of equal product; those of extent 1 are left out."""
    left = [a for a, n in enumerate(before) if n != 1]
    right = [a for a, n in enumerate(after) if n != 1]
    groups = []
    while left:
        inputs, outputs = [left.pop(0)], [right.pop(0)]
        while (p := math.prod(before[a] for a in inputs)) != (
            q := math.prod(after[a] for a in outputs)
        ):
            if p < q:
                inputs.append(left.pop(0))
            else:
                outputs.append(right.pop(0))
        groups.append((inputs, outputs))
    return groups


def _completed(order: Sequence[int], shape: Sequence[int]) -> Permutation:
    """`order` with the axes of extent 1 put in, in the layout that most readers want."""
    rank = len(shape)
    usual = (channels_last(rank), onnx_order(rank))
    for candidate in usual if rank == 4 else reversed(usual):
        if [a for a in candidate if shape[a] != 1] == list(order):
            return candidate
    return (*(a for a in range(rank) if shape[a] == 1), *order)
