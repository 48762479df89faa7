"""Proofs about a finished program, made from its commands alone.

Nothing here is shared with the scheduler: what is checked is the program that ships.
"""

from __future__ import annotations

from collections import defaultdict

from tilewright.errors import CompileError
from tilewright.program.isa import Attend, Engine, Load, Store, semaphore_of
from tilewright.program.program import Buffer, Program
from tilewright.targets import Target


def verify_program(program: Program, target: Target) -> None:
    """Prove that the program fits its target and cannot hang.

    Raises:
        CompileError: a bug of the compiler; the text names the command.
    """
    if program.sram_bytes > target.sram_bytes:
        raise _bug(f"{program.sram_bytes} bytes of SRAM, {target.name} has {target.sram_bytes}")
    _buffers_in_range(program, target)
    _transfers_in_range(program)
    _scores_are_held(program)
    _terminates(program)
    _live_buffers_are_disjoint(program)


def _bug(text: str) -> CompileError:
    return CompileError(
        f"the compiled program is wrong: {text}", fix="report this bug", code="TW-3290"
    )


def _buffers_in_range(program: Program, target: Target) -> None:
    for buffer in program.buffers:
        in_ddr = buffer.group < 0
        limit = program.ddr_bytes if in_ddr else program.sram_bytes
        if buffer.address < 0 or buffer.address + buffer.bytes > limit:
            raise _bug(f"buffer {buffer.name} ends at {buffer.address + buffer.bytes} of {limit}")
        if not in_ddr and buffer.address % target.alignment:
            raise _bug(f"buffer {buffer.name} lies at {buffer.address}, not aligned")


def _transfers_in_range(program: Program) -> None:
    for i, command in enumerate(program.commands):
        dma = command.instruction
        if not isinstance(dma, Load | Store):
            continue
        for start, strides, limit in (
            (dma.ddr, dma.ddr_strides, program.ddr_bytes),
            (dma.sram, dma.sram_strides, program.sram_bytes),
        ):
            reach = sum((n - 1) * s for n, s in zip(dma.shape[:3], strides, strict=True))
            if start + reach + dma.shape[3] > limit:
                raise _bug(f"command {i} transfers beyond byte {limit}")
        if isinstance(dma, Store) and dma.ddr < program.constants_bytes:
            raise _bug(f"command {i} stores over the constants")


def _scores_are_held(program: Program) -> None:
    """The scratch memory of every attention lies in one buffer that lives while it runs."""
    for i, command in enumerate(program.commands):
        attend = command.instruction
        if not isinstance(attend, Attend):
            continue
        end = attend.scratch + 2 * attend.block * attend.shape[1]
        if not any(
            b.group == command.group
            and b.first <= i <= b.last
            and b.address <= attend.scratch
            and end <= b.address + b.bytes
            for b in program.buffers
        ):
            raise _bug(f"command {i} keeps its scores outside its memory")


def _terminates(program: Program) -> None:
    """Run the queues' waits and signals alone: every command must get its turn."""
    queues: dict[int, list[int]] = defaultdict(list)
    for i, command in enumerate(program.commands):
        queues[semaphore_of(command.group, type(command.instruction).ENGINE)].append(i)
    counts = [0] * semaphore_of(program.groups, Engine.LOAD)
    heads = dict.fromkeys(queues, 0)
    progress = True
    while progress:
        progress = False
        for queue, members in queues.items():
            while heads[queue] < len(members):
                command = program.commands[members[heads[queue]]]
                if any(counts[w.semaphore] < w.value for w in command.waits):
                    break
                counts[queue] += command.signals
                heads[queue] += 1
                progress = True
    for queue, members in queues.items():
        if heads[queue] < len(members):
            raise _bug(f"command {members[heads[queue]]} waits for a signal that never comes")


def _live_buffers_are_disjoint(program: Program) -> None:
    """Buffers of one memory whose command ranges overlap must not share bytes."""
    spaces = defaultdict(list)
    for buffer in program.buffers:
        spaces[buffer.group].append(buffer)
    for buffers in spaces.values():
        buffers.sort(key=lambda b: b.first)
        live: list[Buffer] = []
        for buffer in buffers:
            live = [b for b in live if b.last >= buffer.first]
            for other in live:
                if (
                    buffer.address < other.address + other.bytes
                    and other.address < buffer.address + buffer.bytes
                ):
                    raise _bug(
                        f"buffers {other.name} and {buffer.name} share bytes while both live"
                    )
            live.append(buffer)
