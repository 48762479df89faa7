"""How long a program takes, without its data: the timeline and the lower bound beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.machine.boxes import DDR, Box
from tilewright.machine.operands import operands
from tilewright.machine.queues import (
    Listener,
    Queues,
    Silence,
    Span,
    busy_cycles,
    duration,
    total_flow,
    whole_cycles,
)
from tilewright.program.isa import Engine
from tilewright.program.program import Command, Program
from tilewright.targets import Target
from tilewright.targets.cost import transfer_bytes

NEVER = 2**31 - 1


@dataclass(frozen=True)
class Timeline:
    """When everything happened.

    Args:
        spans: start and end of each command, in the program's order, in cycles.
        max_cycle: the last engine's end, the fixed time of a run included.
        engine_busy: (group, engine) -> cycles occupied.
        ddr_bytes: bytes that were copied to and from DDR.
    """

    spans: tuple[Span, ...]
    max_cycle: int
    engine_busy: dict[tuple[int, Engine], int]
    ddr_bytes: int


class LowerBound(NamedTuple):
    """What no order of a program's commands can beat, in cycles.

    `cycle` is `run` plus the largest of the other three.

    Args:
        run: the fixed time of a run.
        engine: work of the busiest engine, fixed times of operators and transfers included; MTX and
            VEC of a group count as one where they do not overlap.
        ddr: bandwidth that all transfers take, over the bandwidth there is.
        path: the longest chain of commands of which each reads what the one before wrote, every
            transfer alone on DDR.  A command also follows the start of its operator's first one in
            the same queue, whose fixed time is thereby part of the chain.  Semaphores, the order of
            a queue and the reuse of memory do not count: they are the schedule's choice.
    """

    cycle: int
    run: int
    engine: int
    ddr: int
    path: int


def simulate_time(program: Program, target: Target, listener: Listener | None = None) -> Timeline:
    """Play the queues of `program`; a listener hears of every start and end.

    Raises:
        MachineFault: a deadlock.
    """
    spans = Queues(program, target, listener or Silence()).run()
    end = max((s.end for s in spans), default=target.cycles(target.run_seconds))
    return Timeline(
        spans=tuple(spans),
        max_cycle=whole_cycles(end),
        engine_busy=busy_cycles(program, spans),
        ddr_bytes=sum(transfer_bytes(c.instruction) for c in program.commands),
    )


def lower_bound(program: Program, target: Target) -> LowerBound:
    """The bound of `LowerBound` for a program."""
    run = math.floor(target.cycles(target.run_seconds))
    engine = _busiest_engine(program, target)
    ddr = math.floor(total_flow(program, target) / target.ddr_bytes_per_cycle)
    path = _critical_path(program, target)
    return LowerBound(run + max(engine, ddr, path), run, engine, ddr, path)


def _alone(command: Command, target: Target) -> float:
    """Cycles of a command that shares nothing."""
    fixed, flow = duration(command, target)
    return fixed + flow / target.ddr_bytes_per_cycle


def _busiest_engine(program: Program, target: Target) -> int:
    work: dict[tuple[int, Engine], float] = {}
    for command in program.commands:
        engine = type(command.instruction).ENGINE
        if engine is Engine.VEC and not target.vector_overlap:
            engine = Engine.MTX
        key = (command.group, engine)
        work[key] = work.get(key, 0.0) + _alone(command, target)
    return math.floor(max(work.values(), default=0.0) + 1e-6)


def _critical_path(program: Program, target: Target) -> int:
    """Longest chain of reads after writes, from the time at which each byte is ready."""
    ready = _ReadyTimes(program)
    starts: dict[tuple[int, Engine, int], int] = {}
    longest = 0
    for command in program.commands:
        boxes = operands(command.instruction)
        start = max((ready.latest(command.group, b) for b in boxes.reads.values()), default=0)
        key = (command.group, type(command.instruction).ENGINE, command.node)
        if command.first:
            starts[key] = (
                start
                + math.floor(duration(command, target).fixed)
                - math.floor(duration(command._replace(first=False), target).fixed)
            )
        else:
            start = max(start, starts.get(key, 0))
        end = min(start + math.floor(_alone(command, target)), NEVER)
        for box in boxes.writes.values():
            ready.set(command.group, box, end)
        longest = max(longest, end)
    return longest


class _ReadyTimes:
    """For each byte of SRAM and of DDR behind the constants, the cycle at which it is written."""

    def __init__(self, program: Program) -> None:
        self._constants = program.constants_bytes
        arena = max(0, program.ddr_bytes - program.constants_bytes)
        self._times = {DDR: np.zeros(arena, np.int32)}
        self._times |= {g: np.zeros(program.sram_bytes, np.int32) for g in range(program.groups)}

    def latest(self, group: int, box: Box) -> int:
        if box.in_ddr and box.address < self._constants:
            return 0
        origin = self._constants if box.in_ddr else 0
        return int(box.bytes_of(self._times[DDR if box.in_ddr else group], origin).max())

    def set(self, group: int, box: Box, cycle: int) -> None:
        origin = self._constants if box.in_ddr else 0
        box.bytes_of(self._times[DDR if box.in_ddr else group], origin)[...] = cycle
