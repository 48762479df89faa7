"""Strided boxes of bytes: what instructions read and write."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

DDR = -1
"""The space of DDR; SRAM spaces are group numbers."""


@dataclass(frozen=True)
class Box:
    """One operand of an instruction.

    Args:
        field: the instruction's field that gives the address.
        in_ddr: whether it lies in DDR, else in the group's SRAM.
        address: first byte.
        shape: extent of each axis, outermost first.
        strides: bytes from one element to the next along each axis; 0 repeats.
        itemsize: bytes of an element.
        alignment: address and strides are multiples of it.
    """

    field: str
    in_ddr: bool
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    alignment: int = 1

    @functools.cached_property
    def end(self) -> int:
        """One past the last byte."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return self.address + reach + self.itemsize

    @functools.cached_property
    def byte_axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Extents and strides of the fewest axes that visit every byte; repeats are left out."""
        axes: list[tuple[int, int]] = []
        for n, s in (*zip(self.shape, self.strides, strict=True), (self.itemsize, 1)):
            if n == 1 or s == 0:
                continue
            if axes and axes[-1][1] == n * s:
                axes[-1] = (axes[-1][0] * n, s)
            else:
                axes.append((n, s))
        return tuple(n for n, _ in axes), tuple(s for _, s in axes)

    @property
    def is_contiguous(self) -> bool:
        return len(self.byte_axes[0]) <= 1 and self.byte_axes[1] in ((), (1,))

    def bytes_of(self, marks: npt.NDArray[Any], origin: int = 0) -> npt.NDArray[Any]:
        """The box's part of `marks`, an array with one element for each byte from `origin` on."""
        shape, strides = self.byte_axes
        size = marks.itemsize
        return np.ndarray(
            shape, marks.dtype, marks.data, (self.address - origin) * size,
            tuple(s * size for s in strides),
        )  # fmt: skip

    def address_of(self, flat: int) -> int:
        """Address of a byte by its number in `bytes_of`'s order."""
        shape, strides = self.byte_axes
        where = np.unravel_index(flat, shape) if shape else ()
        return self.address + sum(int(i) * s for i, s in zip(where, strides, strict=True))

    def overlap(self, other: Box) -> int | None:
        """The first address that both boxes of one space contain; None if there is none."""
        start, end = max(self.address, other.address), min(self.end, other.end)
        if start >= end:
            return None
        if self.is_contiguous and other.is_contiguous:
            return start
        origin = min(self.address, other.address)
        marks = np.zeros(max(self.end, other.end) - origin, np.bool_)
        self.bytes_of(marks, origin)[...] = True
        shared = other.bytes_of(marks, origin)
        return other.address_of(int(shared.argmax())) if shared.any() else None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)
