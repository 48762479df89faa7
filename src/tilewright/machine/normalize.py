"""VEC: normalisation of groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph import DType
from tilewright.machine.arithmetic import Array, Wide, stored
from tilewright.machine.fault import Illegal
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import AffineRecord, Normalize, NormalizeL2, NormalizeRms, NormalizeTile

RECORDS = AffineRecord.numpy_dtype()

GROUP_ELEMENTS = 1 << 18
"""How many elements are worked on at once."""

Spread = Callable[[Wide], tuple[Wide, Wide]]
"""Codes less a constant [groups, elements] -> numerators of that shape and squares [groups, 1]."""


def centred(i: Normalize, boxes: Operands, memory: GroupMemory) -> None:
    """Deviations from the mean over their root mean square; see `isa.Normalize`."""
    # The mean takes every constant with it; this one keeps the squares small.
    middle = 128 if i.types[0] == DType.U8 else 0
    _normalize(i, boxes, memory, middle, _deviations, 45)


def rms(i: NormalizeRms, boxes: Operands, memory: GroupMemory) -> None:
    """Values over their root mean square; see `isa.NormalizeRms`."""
    _normalize(i, boxes, memory, i.zeros[0], _multiples, 45)


def l2(i: NormalizeL2, boxes: Operands, memory: GroupMemory) -> None:
    """Values over their Euclidean norm; see `isa.NormalizeL2`."""
    _normalize(i, boxes, memory, i.zeros[0], _lengths, 37)


def _deviations(e: Wide) -> tuple[Wide, Wide]:
    count, total = e.shape[1], e.sum(axis=1, keepdims=True)
    return e * count - total, count * np.square(e).sum(axis=1, keepdims=True) - total * total


def _multiples(e: Wide) -> tuple[Wide, Wide]:
    count = e.shape[1]
    return e * count, count * np.square(e).sum(axis=1, keepdims=True)


def _lengths(e: Wide) -> tuple[Wide, Wide]:
    return e, np.square(e).sum(axis=1, keepdims=True)


def _normalize(
    i: NormalizeTile, boxes: Operands, memory: GroupMemory, less: int, spread: Spread, top: int
) -> None:
    """Section 12 of the arithmetic, with `top` the h of W = 1."""
    if not 1 <= i.shift <= 62:
        raise Illegal("has a shift outside 1..62")
    x = memory.view(boxes.reads["x"], i.types[0])
    y = memory.view(boxes.writes["y"], i.types[1])
    gain, offset = _affine(memory.view(boxes.reads["gains"], RECORDS))
    size = i.shape[2] * i.shape[3] * i.shape[4]
    step = max(1, GROUP_ELEMENTS // size)
    for outer in range(i.shape[0]):
        for first in range(0, i.shape[1], step):
            part = (outer, slice(first, first + step))
            codes = x[part].reshape(-1, size).astype(np.int64) - less
            numerators, squares = spread(codes)
            n = _quotients(numerators, squares + np.int64(i.epsilon), top)
            n *= gain[part].reshape(-1, size)
            n += offset[part].reshape(-1, size) + (1 << (i.shift - 1))
            n >>= i.shift
            codes = stored(n, i.zeros[1], i.clamp, i.types[1])
            y[part] = codes.reshape(y[part].shape)


def _affine(records: Array) -> tuple[Wide, Wide]:
    """Gains and offsets, int64 in the records' shape."""
    gain = records["gain"].astype(np.int64)
    offset = (records["offset_high"].astype(np.int64) << 32) | records["offset_low"]
    if np.abs(gain).max() > 1 << 24 or np.abs(offset).max() >= 1 << 52:
        raise Illegal("has a gain of more than 24 bits or an offset of more than 52")
    return gain, offset


def _quotients(numerators: Wide, squares: Wide, top: int) -> Wide:
    """Numerators over the roots of the squares, rounded; `numerators` is overwritten.

    Raises:
        Illegal: squares that do not stay below 2**62.
    """
    if np.any(squares >> 62):
        raise Illegal("sums squares to more than 62 bits")
    w, halvings = np.maximum(squares, 1), np.zeros_like(squares)
    for bits in (32, 16, 8, 4, 2):
        short = w < 1 << (62 - bits)
        w[short] <<= bits
        halvings[short] += bits // 2
    root = np.sqrt(w.astype(np.float64)).astype(np.int64)
    root -= root * root > w
    root += (root + 1) * (root + 1) <= w
    share = (1 << 61) // root
    share[squares == 0] = 0
    fraction = top - halvings
    numerators *= share
    numerators += np.left_shift(np.int64(1), fraction - 1)
    numerators >>= fraction
    return numerators
