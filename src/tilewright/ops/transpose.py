"""Transpose: the same elements in another stored order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.copying import Strided, copies
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Tile,
    region_shape,
)
from tilewright.program.isa import Instruction


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
