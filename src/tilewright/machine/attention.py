"""MTX: attention, block of rows by block of rows.

Products are exact in float64: the largest sum stays below 2**47.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.graph import DType
from tilewright.machine.arithmetic import Wide, exponentials, rescaled, stored
from tilewright.machine.fault import Illegal
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import Attend

Floats = npt.NDArray[np.float64]


def attend(i: Attend, boxes: Operands, memory: GroupMemory) -> None:
    """See `isa.Attend`."""
    if not i.block:
        raise Illegal("holds no rows of scores")
    q, k, v = (
        memory.view(boxes.reads[name], kind).astype(np.float64) - zero
        for name, kind, zero in zip("qkv", i.types, i.zeros, strict=False)
    )
    y = memory.view(boxes.writes["y"], i.types[5])
    held = memory.view(boxes.writes["scratch"], DType.S16).reshape(i.block, i.shape[1])
    for first in range(0, i.shape[0], i.block):
        rows = slice(first, first + i.block)
        scores = held[: len(q[rows])]
        scores[...] = _scores(i, q[rows] @ k.T, rows, boxes, memory)
        p = _weights(i, scores.astype(np.int64))
        y[rows] = _means(i, p, p.astype(np.float64) @ v)


def _scores(
    i: Attend, sums: Floats, rows: slice, boxes: Operands, memory: GroupMemory
) -> npt.NDArray[Any]:
    """Saturated scores of some rows, s16."""
    total: Wide = rescaled(sums.astype(np.int64), i.score_multiplier, i.score_shift, i.pre_shift)
    if i.bias:
        total += memory.view(boxes.reads["bias"], i.types[4])[rows]
    if i.mask:
        mask = memory.view(boxes.reads["mask"], i.types[3])[rows].astype(np.int64) - i.zeros[3]
        total += rescaled(mask, i.mask_multiplier, i.mask_shift)
    return stored(total, 0, DType.S16.range, DType.S16)


def _weights(i: Attend, scores: Wide) -> Wide:
    """u8 exponentials of rows."""
    power = exponentials(scores, i.exponent_multiplier, i.exponent_shift)
    power *= 255
    power += 1 << 22
    power >>= 23
    return power


def _means(i: Attend, p: Wide, sums: Floats) -> npt.NDArray[Any]:
    """Sums of weighted values over the sum of weights, as codes of y."""
    share = (1 << 39) // p.sum(axis=1, keepdims=True)
    mean: Wide = sums.astype(np.int64)
    mean *= share
    mean += 1 << 22
    mean >>= 23
    scaled = rescaled(mean, i.multiplier, i.shift)
    return stored(scaled, i.zeros[4], DType(i.types[5]).range, i.types[5])
