"""What one operator's file provides, and all that the generic compiler knows of an operator.

Regions are in stored (channels-last) coordinates of the output tensor; the compiler cuts outputs
into tiles, asks `needs` which part of each input a tile reads, brings the parts and the constants
into SRAM, and asks `emit` for the instructions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.graph import Operator, TensorType
from tilewright.program.isa import Instruction


class Span(NamedTuple):
    """A half-open interval of one axis."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


Region = tuple[Span, ...]
"""A box: one span for each axis of a tensor."""


def whole(shape: Sequence[int]) -> Region:
    return tuple(Span(0, n) for n in shape)


def region_shape(region: Region) -> tuple[int, ...]:
    return tuple(s.size for s in region)


def region_elements(region: Region) -> int:
    return math.prod(s.size for s in region)


class Split(NamedTuple):
    """An output axis along which tiles may be cut, at multiples of `step`."""

    axis: int
    step: int = 1


class Work(NamedTuple):
    """What a region costs, for reports and the lower bound."""

    macs: int = 0
    vector_elements: int = 0


@dataclass(frozen=True)
class View:
    """A box of a tensor held in SRAM.

    Args:
        type: the whole tensor's type.
        box: the part that is held.
        address: SRAM byte address of the box's first element.
        strides: bytes from one element to the next along each axis.
    """

    type: TensorType
    box: Region
    address: int
    strides: tuple[int, ...]

    def at(self, point: Sequence[int]) -> int:
        """Byte address of the element at tensor coordinates `point`."""
        offsets = (s * (p - b.start) for s, p, b in zip(self.strides, point, self.box, strict=True))
        return self.address + sum(offsets)

    def origin(self, region: Region) -> int:
        """Byte address of the first element of `region`."""
        return self.at([s.start for s in region])


@dataclass(frozen=True)
class Tile:
    """One tile to emit: where its output goes and where its inputs and constants are."""

    region: Region
    output: View
    inputs: tuple[View, ...]
    constants: Mapping[str, int]
    """Constant name -> SRAM address of the slice that `constant_rows` asked for."""
    workspace: int = 0
    """SRAM address of the bytes that `workspace` asked for."""


class NpuOperator(Operator):
    """An operator that the NPU executes; one output."""

    @abstractmethod
    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        """The box of each input that `region` of the output reads; never empty."""

    @abstractmethod
    def emit(self, tile: Tile) -> list[Instruction]:
        """The instructions of one tile, in order, all of one engine."""

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        """Axes along which the output may be cut, preferred first; default: every axis."""
        return tuple(Split(axis) for axis in range(len(output.shape)))

    def constant_rows(self, name: str, region: Region) -> Span:
        """Rows (first axis) of constant `name` that `region` reads; default: all."""
        return Span(0, len(getattr(self, name)))

    def workspace(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> int:
        """Bytes of SRAM that the instructions of a region write and read between each other."""
        return 0

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        """Cost of a region; default: one vector element for each output element."""
        return Work(vector_elements=region_elements(region))


def packed(values: Sequence[int], length: int, fill: int) -> tuple[int, ...]:
    """`values` with `fill` put in front, up to `length`: axes of a strided instruction."""
    return (fill,) * (length - len(values)) + tuple(values)


def strided_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]], length: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Fold a box of any rank into at most `length` strided axes.

    Adjacent axes are merged where every operand's strides allow it; axes of extent 1 vanish.

    Returns:
        the extents and each operand's strides, padded in front to `length`.

    Raises:
        ValueError: more than `length` axes remain.
    """
    merged: list[tuple[int, list[int]]] = []
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        here = [s[axis] for s in strides]
        if merged and all(
            outer == n * inner for outer, inner in zip(merged[-1][1], here, strict=True)
        ):
            merged[-1] = (merged[-1][0] * n, here)
        else:
            merged.append((n, here))
    if len(merged) > length:
        raise ValueError(f"{len(merged)} strided axes do not fit {length}")
    extents = packed([n for n, _ in merged], length, 1)
    return extents, [packed([s[i] for _, s in merged], length, 0) for i in range(len(strides))]
