"""VEC: softmax over rows."""

from __future__ import annotations

import numpy as np

from tilewright.graph import DType
from tilewright.machine.arithmetic import Wide, exponentials, rescaled, stored
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import Softmax

ROW_ELEMENTS = 1 << 18
"""How many elements are worked on at once."""


def softmax(i: Softmax, boxes: Operands, memory: GroupMemory) -> None:
    """Section 11 of the arithmetic over the last axis of [o0, o1, n]."""
    x = memory.view(boxes.reads["x"], i.types[0])
    y = memory.view(boxes.writes["y"], i.types[1])
    step = max(1, ROW_ELEMENTS // i.shape[2])
    for outer in range(i.shape[0]):
        for first in range(0, i.shape[1], step):
            rows = slice(first, first + step)
            probability = _probabilities(i, x[outer, rows].astype(np.int64))
            scaled = rescaled(probability, i.multiplier, i.shift)
            limits = DType(i.types[1]).range
            y[outer, rows] = stored(scaled, i.output_zero, limits, i.types[1])


def _probabilities(i: Softmax, q: Wide) -> Wide:
    """Q24 probabilities of codes [rows, n]."""
    power = exponentials(q, i.exponent_multiplier, i.exponent_shift)
    share = (1 << 53) // power.sum(axis=1, keepdims=True)
    result: Wide = (power * share + (1 << 28)) >> 29
    return result
