"""VEC: pooling over windows and reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.machine.arithmetic import Wide, centred, is_identity, rescaled, stored
from tilewright.machine.fault import Illegal
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import AveragePool, CountRecord, MaxPool, Reduce

Array = npt.NDArray[Any]

COUNTS = CountRecord.numpy_dtype()


def max_pool(i: MaxPool, boxes: Operands, memory: GroupMemory) -> None:
    """The largest code of each window; see `isa.MaxPool`."""
    x = memory.view(boxes.reads["input"], i.types[0])
    best = _windows(i, x, np.iinfo(x.dtype).min, np.maximum)
    y = memory.view(boxes.writes["output"], i.types[1])
    if is_identity(i.multiplier, i.shift) and i.zeros[0] == i.zeros[1] and len({*i.types}) == 1:
        y[...] = np.clip(best.astype(np.int64), i.clamp[0], i.clamp[1])
        return
    scaled = rescaled(centred(best, i.zeros[0]), i.multiplier, i.shift)
    y[...] = stored(scaled, i.zeros[1], i.clamp, i.types[1])


def average_pool(i: AveragePool, boxes: Operands, memory: GroupMemory) -> None:
    """The mean of what counts in each window; see `isa.AveragePool`."""
    x = centred(memory.view(boxes.reads["input"], i.types[0]), i.zeros[0])
    total: Wide = _windows(i, x, 0, np.add)
    records = memory.view(boxes.reads["counts"], COUNTS)
    rows = _counted(i, 0, i.out_rows)
    columns = _counted(i, 1, i.out_columns)
    order = np.argsort(records["count"], kind="stable")
    known = records["count"][order]
    wanted = rows[:, None] * columns[None, :]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    if np.any(known[place] != wanted):
        missing = int(wanted[known[place] != wanted][0])
        raise Illegal(f"has no record for a window of {missing} elements")
    chosen = records[order[place]][:, :, None]
    y = memory.view(boxes.writes["output"], i.types[1])
    scaled = rescaled(total, chosen["multiplier"], chosen["shift"])
    y[...] = stored(scaled, i.zeros[1], i.clamp, i.types[1])


def reduce(i: Reduce, boxes: Operands, memory: GroupMemory) -> None:
    """The sum over the two middle axes; see `isa.Reduce`."""
    x = memory.view(boxes.reads["x"], i.types[0])
    total = x.sum(axis=(1, 2), dtype=np.int64) - i.shape[1] * i.shape[2] * i.zeros[0]
    scaled = rescaled(total, i.multiplier, i.shift, i.pre_shift)
    y = memory.view(boxes.writes["y"], i.types[1])
    y[...] = stored(scaled, i.zeros[1], i.clamp, i.types[1])


def _windows(
    i: MaxPool | AveragePool, x: Array, empty: int, combine: Callable[..., Array]
) -> Array:
    """Combine each window, one axis after the other; `empty` stands outside the input."""
    for axis in (0, 1):
        outs = (i.out_rows, i.out_columns)[axis]
        result = np.full((*x.shape[:axis], outs, *x.shape[axis + 1 :]), empty, x.dtype)
        along, source = np.moveaxis(result, axis, 0), np.moveaxis(x, axis, 0)
        for tap in range(i.kernel[axis]):
            offset = tap * i.dilation[axis] - i.pad[axis]
            step = i.stride[axis]
            first = max(0, -(offset // step))
            last = min(outs - 1, (len(source) - 1 - offset) // step)
            if first > last:
                continue
            start = first * step + offset
            part = source[start : start + (last - first) * step + 1 : step]
            combine(along[first : last + 1], part, out=along[first : last + 1])
        x = result
    return x


def _counted(i: AveragePool, axis: int, outs: int) -> npt.NDArray[np.int64]:
    """How many rows or columns of each window count."""
    start, stop = i.counted[2 * axis : 2 * axis + 2]
    first = np.arange(outs)[:, None] * i.stride[axis] - i.pad[axis]
    at = first + np.arange(i.kernel[axis]) * i.dilation[axis]
    counts: npt.NDArray[np.int64] = ((at >= start) & (at < stop)).sum(axis=1, dtype=np.int64)
    return counts
