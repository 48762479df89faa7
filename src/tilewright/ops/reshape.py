"""Reshape: the same elements in the same stored order under another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.copying import Strided, copies
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    View,
    whole,
)
from tilewright.program.isa import Instruction

ENOUGH_PARTS = 16
"""Parts that cuts must leave before they may be restricted to slices of the input."""


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

        Where it leaves enough parts to fit any SRAM, a cut falls between outermost slices of the
        input too.
        """
        outer = next((a for a, n in enumerate(output.shape) if n > 1), None)
        if outer is None:
            return ()
        run = math.prod(output.shape[outer + 1 :])
        first = next(a for a, n in enumerate(inputs[0].shape) if n > 1)
        step = math.lcm(run, math.prod(inputs[0].shape[first + 1 :])) // run
        return (Split(outer, step if step * ENOUGH_PARTS <= output.shape[outer] else 1),)

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
