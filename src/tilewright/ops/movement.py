"""Movement that only renames or permutes axes: Reshape and Transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.numerics import multiplier
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    region_shape,
    strided_axes,
    whole,
)
from tilewright.program.isa import Instruction, Rescale

UNIT = multiplier(1.0)
"""R24 by one: the identity on codes."""


def copy_box(
    shape: Sequence[int],
    x: int,
    x_strides: Sequence[int],
    y: int,
    y_strides: Sequence[int],
    dtype: int,
) -> Rescale:
    """A strided copy of codes, of any rank that folds into six axes."""
    from tilewright.graph import DType

    extents, (xs, ys) = strided_axes(shape, [x_strides, y_strides], 6)
    lo, hi = np.iinfo(DType(dtype).numpy).min, np.iinfo(DType(dtype).numpy).max
    return Rescale(
        x=x, y=y, shape=extents, x_strides=xs, y_strides=ys, types=(dtype, dtype), zeros=(0, 0),
        multiplier=UNIT.m, shift=UNIT.shift, clamp=(int(lo), int(hi)),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Reshape(NpuOperator):
    """The same elements in the same stored order under another shape."""

    CODE = 2
    shape: tuple[int, ...] = attribute("stored shape of the output", count=-1)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        if inputs[0].elements != int(np.prod(self.shape, dtype=np.int64)):
            raise QuantizationError(f"{where}: {inputs[0].shape} cannot become {self.shape}")
        return (self.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        return [inputs[0].reshape(self.shape)]

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        """Only the outermost axis with more than one element: a part stays one run of elements."""
        outer = next((a for a, n in enumerate(output.shape) if n > 1), None)
        return () if outer is None else (Split(outer),)

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        start, stop = self._run(region)
        return (enclosing_box(inputs[0].shape, start, stop),)

    def _run(self, region: Region) -> tuple[int, int]:
        first = np.ravel_multi_index([s.start for s in region], self.shape)
        last = np.ravel_multi_index([s.stop - 1 for s in region], self.shape)
        return int(first), int(last) + 1

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        start, stop = self._run(tile.region)
        corner = np.unravel_index(start, view.type.shape)
        size = view.type.dtype.bytes
        return [
            copy_box(
                (stop - start,), view.at([int(c) for c in corner]), (size,),
                tile.output.origin(tile.region), (size,), view.type.dtype,
            )
        ]  # fmt: skip


def enclosing_box(shape: Sequence[int], start: int, stop: int) -> Region:
    """The smallest box of full inner axes that holds elements [start, stop) in stored order."""
    box = list(whole(shape))
    inner = 1
    for axis in reversed(range(len(shape))):
        first, last = start // inner, (stop - 1) // inner
        if first // shape[axis] != last // shape[axis]:
            inner *= shape[axis]
            continue
        if first % shape[axis] == 0 and last % shape[axis] == shape[axis] - 1:
            inner *= shape[axis]
            continue
        box[axis] = Span(first % shape[axis], last % shape[axis] + 1)
        for outer in reversed(range(axis)):
            inner *= shape[outer + 1]
            at = start // inner % shape[outer]
            box[outer] = Span(at, at + 1)
        break
    return tuple(box)


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
        return [
            copy_box(
                region_shape(tile.region), view.origin(need), [view.strides[a] for a in self.axes],
                tile.output.origin(tile.region), tile.output.strides, view.type.dtype,
            )
        ]  # fmt: skip
