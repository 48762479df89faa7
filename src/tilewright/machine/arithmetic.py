"""The machine's own integer formulas (docs/arithmetic.md), in int64.

Written apart from the reference executor's on purpose: where the two agree, neither has a private
mistake.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.graph import DType
from tilewright.machine.fault import Illegal

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.int64]

R24_BITS = 38


def centred(codes: Array, zero: int) -> Wide:
    """code - zero point."""
    return codes.astype(np.int64) - zero


def rescaled(x: Wide, multiplier: Array | int, shift: Array | int, pre_shift: int = 0) -> Wide:
    """R24 with one rounding, halves up; `x` is overwritten.

    A negative multiplier negates the result of the positive one.

    Raises:
        Illegal: a shift outside 1..62, or a value that R24 does not take.
    """
    if np.min(shift) < 1 or np.max(shift) > 62:
        raise Illegal("has a shift outside 1..62")
    if pre_shift:
        x += 1 << (pre_shift - 1)
        x >>= pre_shift
    if x.size and max(int(x.max()), -int(x.min())) >> R24_BITS:
        raise Illegal(f"rescales a value of more than {R24_BITS} bits")
    m, s = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    x *= np.abs(m)
    x += np.left_shift(np.int64(1), s - 1)
    x >>= s
    if np.any(m < 0):
        x *= np.where(m < 0, np.int64(-1), np.int64(1))
    return x


def stored(x: Wide, zero: int, clamp: Sequence[Array | int], dtype: int) -> Array:
    """Zero point, clamp to (lo, hi), and the codes of a type; `x` is overwritten.

    Raises:
        Illegal: a bound of the clamp that the type cannot hold.
    """
    kind = DType(dtype).numpy
    limits = np.iinfo(kind)
    lo, hi = clamp
    if np.min(lo) < limits.min or np.max(hi) > limits.max:
        raise Illegal(f"clamps to values that {DType(dtype).text} cannot hold")
    x += zero
    np.maximum(x, lo, out=x)
    np.minimum(x, hi, out=x)
    return x.astype(kind)


def interpolated(q: Wide, table: Array) -> Wide:
    """128 times the value between the entries of a 513-entry table (section 7)."""
    entries = table.astype(np.int64)
    steps = np.diff(entries)
    index = (q >> 7) + 256
    value: Wide = entries[index] * 128 + steps[index] * (q & 127)
    return value


def is_identity(multiplier: int, shift: int) -> bool:
    """Whether R24 leaves every integer as it is."""
    return shift <= 31 and multiplier == 1 << shift


def _root_of_two(i: int) -> int:
    """2**(23 - i/256) rounded, exactly: the k with (2k-1)**256 < 2**(24*256 - i) < (2k+1)**256."""
    power = 1 << (24 * 256 - i)
    low, high = 1 << 22, 1 << 23
    while low < high:
        middle = (low + high) // 2
        if (2 * middle + 1) ** 256 < power:
            low = middle + 1
        else:
            high = middle
    return low


@functools.cache
def exp2_table() -> Wide:
    """2**(23 - i/256) for i = 0..256, the table of Softmax."""
    return np.array([_root_of_two(i) for i in range(257)], np.int64)


def exponentials(q: Wide, multiplier: int, shift: int) -> Wide:
    """E of section 11 of rows [rows, n]: 2**23 at the largest code, halved by whole steps of t."""
    distance = q.max(axis=1, keepdims=True) - q
    exponent = rescaled(distance, multiplier, shift)
    whole = np.minimum(exponent >> 16, 32)
    index, rest = (exponent >> 8) & 255, exponent & 255
    table = exp2_table()
    power: Wide = table[index] - (((table[index] - table[index + 1]) * rest + 128) >> 8)
    power += np.left_shift(np.int64(1), whole) >> 1
    power >>= whole
    power[whole > 31] = 0
    return power
