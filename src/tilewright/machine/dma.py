"""LOAD and STORE: strided copies between DDR and SRAM."""

from __future__ import annotations

from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import Load, Store


def copy(_: Load | Store, boxes: Operands, memory: GroupMemory) -> None:
    """The one box written from the one box read."""
    (source,), (target,) = boxes.reads.values(), boxes.writes.values()
    memory.view(target)[...] = memory.view(source)
