"""The bytes of a run: DDR and the SRAM of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.graph import DType
from tilewright.machine.boxes import DDR, Box

Array = npt.NDArray[Any]


class Memory:
    """Spaces of zeroed bytes by number: DDR, then groups."""

    def __init__(self, groups: int, sram_bytes: int, ddr_bytes: int) -> None:
        self._spaces = {DDR: np.zeros(ddr_bytes, np.uint8)}
        self._spaces |= {g: np.zeros(sram_bytes, np.uint8) for g in range(groups)}

    def space(self, number: int) -> npt.NDArray[np.uint8]:
        return self._spaces[number]


class GroupMemory:
    """Memory as one group's engines see it."""

    def __init__(self, memory: Memory, group: int) -> None:
        self._ddr = memory.space(DDR)
        self._sram = memory.space(group)

    def view(self, box: Box, dtype: int | np.dtype[Any] = DType.U8) -> Array:
        """The box's elements, without a copy.

        Args:
            dtype: a DType code, or the NumPy type of a record.
        """
        kind = dtype if isinstance(dtype, np.dtype) else DType(dtype).numpy
        space = self._ddr if box.in_ddr else self._sram
        return np.ndarray(box.shape, kind, space.data, box.address, box.strides)
