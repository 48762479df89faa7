"""VEC: instructions that map elements to elements."""

from __future__ import annotations

import numpy as np

from tilewright.graph import DType
from tilewright.machine.arithmetic import Wide, centred, interpolated, is_identity, rescaled, stored
from tilewright.machine.fault import Illegal
from tilewright.machine.matrix import CHANNELS
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import (
    Add,
    AddConstant,
    Fill,
    Lookup8,
    Lookup16,
    Multiply,
    ParametricRelu,
    Rescale,
)


def add(i: Add, boxes: Operands, memory: GroupMemory) -> None:
    """Sum with a common shift; see `isa.Add`."""
    a = centred(memory.view(boxes.reads["a"], i.types[0]), i.zeros[0])
    b = centred(memory.view(boxes.reads["b"], i.types[1]), i.zeros[1])
    a *= i.ma
    b *= i.mb
    a += b
    y = memory.view(boxes.writes["y"], i.types[2])
    y[...] = stored(_shifted(a, i.shift), i.zeros[2], i.clamp, i.types[2])


def add_constant(i: AddConstant, boxes: Operands, memory: GroupMemory) -> None:
    """Sum with constants at the accumulator's scale; see `isa.AddConstant`."""
    a = centred(memory.view(boxes.reads["a"], i.types[0]), i.zeros[0])
    a *= i.ma
    a += memory.view(boxes.reads["c"], DType.S64)
    y = memory.view(boxes.writes["y"], i.types[1])
    y[...] = stored(_shifted(a, i.shift), i.zeros[1], i.clamp, i.types[1])


def _shifted(x: Wide, shift: int) -> Wide:
    if not 1 <= shift <= 62:
        raise Illegal("has a shift outside 1..62")
    x += 1 << (shift - 1)
    x >>= shift
    return x


def multiply(i: Multiply, boxes: Operands, memory: GroupMemory) -> None:
    """Product of centred codes; see `isa.Multiply`."""
    a = centred(memory.view(boxes.reads["a"], i.types[0]), i.zeros[0])
    a *= centred(memory.view(boxes.reads["b"], i.types[1]), i.zeros[1])
    y = memory.view(boxes.writes["y"], i.types[2])
    y[...] = stored(rescaled(a, i.multiplier, i.shift), i.zeros[2], i.clamp, i.types[2])


def lookup8(i: Lookup8, boxes: Operands, memory: GroupMemory) -> None:
    """A 256-entry table; see `isa.Lookup8`."""
    x = memory.view(boxes.reads["x"], DType.U8)
    index = x if i.types[0] == DType.U8 else x ^ 0x80
    table = memory.view(boxes.reads["table"], i.types[1])
    memory.view(boxes.writes["y"], i.types[1])[...] = table[index]


def lookup16(i: Lookup16, boxes: Operands, memory: GroupMemory) -> None:
    """A 513-entry table with interpolation; see `isa.Lookup16`."""
    q = memory.view(boxes.reads["x"], DType.S16).astype(np.int64)
    table = memory.view(boxes.reads["table"], DType.S16)
    value = rescaled(interpolated(q, table), i.multiplier, i.shift)
    y = memory.view(boxes.writes["y"], i.output_type)
    y[...] = stored(value, i.output_zero, i.clamp, i.output_type)


def parametric_relu(i: ParametricRelu, boxes: Operands, memory: GroupMemory) -> None:
    """One R24 for what is not negative, one of the channel for the rest."""
    d = centred(memory.view(boxes.reads["x"], i.types[0]), i.zeros[0])
    channels = memory.view(boxes.reads["channels"], CHANNELS)
    below = rescaled(np.minimum(d, 0), channels["multiplier"], channels["shift"])
    above = rescaled(np.maximum(d, 0), i.multiplier, i.shift)
    y = memory.view(boxes.writes["y"], i.types[1])
    y[...] = stored(np.where(d >= 0, above, below), i.zeros[1], i.clamp, i.types[1])


def rescale(i: Rescale, boxes: Operands, memory: GroupMemory) -> None:
    """Movement with a change of scale; see `isa.Rescale`."""
    x = memory.view(boxes.reads["x"], i.types[0])
    y = memory.view(boxes.writes["y"], i.types[1])
    if is_identity(i.multiplier, i.shift) and i.zeros[0] == i.zeros[1] and len({*i.types}) == 1:
        limits = np.iinfo(x.dtype)
        whole = i.clamp == (limits.min, limits.max)
        y[...] = x.copy() if whole else stored(centred(x, 0), 0, i.clamp, i.types[1])
        return
    d = rescaled(centred(x, i.zeros[0]), i.multiplier, i.shift)
    y[...] = stored(d, i.zeros[1], i.clamp, i.types[1])


def fill(i: Fill, boxes: Operands, memory: GroupMemory) -> None:
    """One code everywhere."""
    y = memory.view(boxes.writes["y"], i.type)
    limits = np.iinfo(y.dtype)
    if not limits.min <= i.value <= limits.max:
        raise Illegal(f"fills with {i.value}, which {DType(i.type).text} cannot hold")
    y[...] = i.value
