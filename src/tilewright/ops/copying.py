"""Strided copies of codes, rescaled on the way: what the movement operators share.

y = x where input and output have one encoding, else y = sat(R24(x - zx; sx/sy) + zy)
(section 9 of the arithmetic).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright import numerics
from tilewright.graph import Array, Encoding, TensorType, attribute
from tilewright.numerics import IntRange, Multiplier
from tilewright.ops.protocol import NpuOperator, strided_axes
from tilewright.program.isa import Fill, Instruction, Rescale

UNIT = numerics.multiplier(1.0)
"""R24 by one: the identity on codes."""


@dataclass(frozen=True, eq=False)
class Movement(NpuOperator):
    """Base of the operators that move codes; UNIT where the encodings are equal."""

    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")


def rescale_between(x: Encoding, y: Encoding, where: str) -> Multiplier:
    """R24 that turns codes of `x` into codes of `y`, zero points aside."""
    return numerics.multiplier(x.scale / y.scale, where)


def rescaled(codes: Array, x: Encoding, y: Encoding, m: int, shift: int) -> Array:
    """The formula of the module docstring, in the dtype of `y`."""
    if x == y:
        return np.ascontiguousarray(codes)
    r = numerics.r24(codes.astype(np.int64) - x.zero_point, m, shift)
    return numerics.saturate(r + y.zero_point, *y.dtype.range).astype(y.dtype.numpy)


def movement_limits(x: Encoding, y: Encoding) -> IntRange:
    """The clamp of a copy: none where bytes move as they are."""
    if x != y:
        return y.dtype.range
    info = np.iinfo(y.dtype.numpy)
    return IntRange(int(info.min), int(info.max))


def foldable_boxes(
    shape: Sequence[int], strides: Sequence[Sequence[int]], length: int
) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]], tuple[int, ...]]]:
    """Cut a strided box into parts that an instruction of `length` axes takes.

    Axes with a negative stride are walked one index at a time: instructions count upwards.

    Yields:
        extents, each operand's strides, each operand's byte offset.
    """
    backwards = [
        axis for axis, n in enumerate(shape) if n > 1 and any(s[axis] < 0 for s in strides)
    ]
    try:
        if not backwards:
            extents, folded = strided_axes(shape, strides, length)
            yield extents, folded, (0,) * len(strides)
            return
        axis = backwards[0]
    except ValueError:
        axis = next(a for a, n in enumerate(shape) if n > 1)
    rest = [*shape[:axis], 1, *shape[axis + 1 :]]
    for i in range(shape[axis]):
        for extents, folded, offsets in foldable_boxes(rest, strides, length):
            moved = (o + i * s[axis] for o, s in zip(offsets, strides, strict=True))
            yield extents, folded, tuple(moved)


@dataclass(frozen=True)
class Strided:
    """One side of a copy: the byte address of its first element and its strides."""

    address: int
    strides: Sequence[int]
    type: TensorType


def copies(
    shape: Sequence[int], x: Strided, y: Strided, m: int = UNIT.m, shift: int = UNIT.shift
) -> list[Instruction]:
    """Copy a box of any rank from `x` to `y`."""
    same = x.type.encoding == y.type.encoding
    limits = movement_limits(x.type.encoding, y.type.encoding)
    return [
        Rescale(
            x=x.address + x_offset,
            y=y.address + y_offset,
            shape=extents,
            x_strides=x_strides,
            y_strides=y_strides,
            types=(x.type.dtype, y.type.dtype),
            zeros=(0, 0) if same else (x.type.zero_point, y.type.zero_point),
            multiplier=m,
            shift=shift,
            clamp=(limits.lo, limits.hi),
        )
        for extents, (x_strides, y_strides), (x_offset, y_offset) in foldable_boxes(
            shape, [x.strides, y.strides], 6
        )
    ]


def fills(shape: Sequence[int], y: Strided, value: int) -> list[Instruction]:
    """Write one code to a box of any rank."""
    return [
        Fill(y=y.address + offset, shape=extents, y_strides=strides, type=y.type.dtype, value=value)
        for extents, (strides,), (offset,) in foldable_boxes(shape, [y.strides], 4)
    ]
