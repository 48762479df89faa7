"""VEC: resizing of images with Q11 coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.machine.arithmetic import Wide, centred, rescaled, stored
from tilewright.machine.fault import Illegal
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import Resize, TapRecord

TAPS = TapRecord.numpy_dtype()


def resize(i: Resize, boxes: Operands, memory: GroupMemory) -> None:
    """Weighted sums along rows, then along columns, rounded once; see `isa.Resize`."""
    x = centred(memory.view(boxes.reads["input"], i.types[0]), i.zeros[0])
    rows = memory.view(boxes.reads["rows"], TAPS).reshape(i.out_rows, i.taps)
    columns = memory.view(boxes.reads["columns"], TAPS).reshape(i.out_columns, i.taps)
    tall = _along(x, rows, i.origin[0])
    total = np.swapaxes(_along(np.swapaxes(tall, 0, 1), columns, i.origin[1]), 0, 1)
    y = memory.view(boxes.writes["output"], i.types[1])
    scaled = rescaled(np.ascontiguousarray(total), i.multiplier, i.shift)
    y[...] = stored(scaled, i.zeros[1], i.clamp, i.types[1])


def _along(x: Wide, taps: npt.NDArray[Any], origin: int) -> Wide:
    """Weighted sums over the first axis."""
    index = taps["index"].astype(np.int64) - origin
    if index.min() < 0 or index.max() >= len(x):
        raise Illegal("reads rows or columns that are not present")
    shape = (len(taps), *(1,) * (x.ndim - 1))
    result = np.zeros((len(taps), *x.shape[1:]), np.int64)
    for tap in range(taps.shape[1]):
        result += x[index[:, tap]] * taps["coefficient"][:, tap].astype(np.int64).reshape(shape)
    return result
