"""A compiled program: instructions for one target and one NPU mode, and where everything lies.

The DDR address space of a program begins with the constants of its graph (`constants.py`), followed
by the arena that holds inputs, outputs and spilled tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.program.isa import Instruction, Wait


class Command(NamedTuple):
    """An instruction in its queue.

    Args:
        group: the group whose queue `type(instruction).ENGINE` it stands in.
        waits: semaphores to reach before it starts.
        signals: whether its completion counts on its queue's semaphore.
        node: index into `Program.nodes` of the operator that it serves.
        first: whether it begins its operator's work on this queue; MTX and VEC then take the
            target's fixed time of an operator besides.
    """

    group: int
    instruction: Instruction
    waits: tuple[Wait, ...]
    signals: bool
    node: int
    first: bool


class Port(NamedTuple):
    """A graph input or output in DDR, in stored order without gaps."""

    name: str
    address: int
    bytes: int


class Buffer(NamedTuple):
    """What lies where, for reports and for the machine's checks.

    Args:
        name: tensor or constant.
        group: owner of the SRAM, -1 for DDR.
        first, last: indices into `Program.commands` between which it is live, inclusive.
    """

    name: str
    group: int
    address: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Program:
    """Commands in one global order that keeps each queue's order.

    Args:
        target: name of the target description.
        target_digest: hash of that description; the machine refuses another.
        mode: NPU mode, for instance "NPU1".
        groups: number of groups in use.
        sram_bytes: SRAM of each group that the program may touch.
        constants_bytes: size of the constants at the start of DDR.
        ddr_bytes: size of the whole DDR address space.
        nodes: names of the graph's nodes, for reports.
    """

    target: str
    target_digest: str
    mode: str
    groups: int
    sram_bytes: int
    constants_bytes: int
    ddr_bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    commands: tuple[Command, ...]
