"""The discrete events of a program: which command runs when.

Each queue (group, engine) executes its commands in order.  A command starts when its waits are met
and its engine is free; where MTX and VEC do not overlap, the other of the two must be idle as well,
and of two that could start the one earlier in the program does.  Transfers that run at the same
time share DDR bandwidth equally.  Times are clock cycles, fractions included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tilewright.errors import MachineFault
from tilewright.machine.fault import DEADLOCK, command_name
from tilewright.program.disassemble import wait_text
from tilewright.program.isa import Engine, Load, Store, semaphore_of
from tilewright.program.program import Command, Program
from tilewright.targets import Target
from tilewright.targets.cost import cycles, transfer

TOLERANCE = 1e-6
"""Cycles; events closer than this happen together."""


class Duration(NamedTuple):
    """How long a command keeps its engine: `fixed` cycles, then `flow` bytes through DDR."""

    fixed: float
    flow: int


class Span(NamedTuple):
    """When a command ran, in cycles."""

    start: float
    end: float


class Listener(Protocol):
    """Told of every start and end, in the order of events."""

    def started(self, index: int) -> None: ...

    def finished(self, index: int) -> None: ...


class Silence:
    """A listener that does nothing."""

    def started(self, index: int) -> None:
        pass

    def finished(self, index: int) -> None:
        pass


def queue_of(command: Command) -> int:
    """Number of the command's queue, also that of its semaphore."""
    return semaphore_of(command.group, type(command.instruction).ENGINE)


def duration(command: Command, target: Target) -> Duration:
    """Cycles and DDR bytes of a command, the fixed time of its operator included."""
    instruction = command.instruction
    if isinstance(instruction, Load | Store):
        flow = transfer(instruction, target).ddr_bytes
        return Duration(target.cycles(target.transfer_seconds), flow)
    extra = target.cycles(target.operator_seconds) if command.first else 0.0
    return Duration(cycles(instruction, target) + extra, 0)


@dataclasses.dataclass
class _Running:
    """A command in its engine: in its fixed part until `until`, then `left` bytes to move."""

    index: int
    start: float
    until: float
    left: float
    flows: bool


class Queues:
    """The state of all queues; `run` plays the program once."""

    def __init__(self, program: Program, target: Target, listener: Listener) -> None:
        self._program = program
        self._listener = listener
        self._overlap = target.vector_overlap
        self._bytes_per_cycle = target.ddr_bytes_per_cycle
        self._durations = [duration(c, target) for c in program.commands]
        self._pending: list[list[int]] = [
            [] for _ in range(semaphore_of(program.groups, Engine(0)))
        ]
        for index in reversed(range(len(program.commands))):
            self._pending[queue_of(program.commands[index])].append(index)
        self._counts = [0] * len(self._pending)
        self._running: dict[int, _Running] = {}
        self._spans = [Span(0.0, 0.0)] * len(program.commands)
        self._now = target.cycles(target.run_seconds)

    def run(self) -> list[Span]:
        """When each command ran.

        Raises:
            MachineFault: no command can start and some are left.
        """
        while True:
            self._start_ready()
            if not self._running:
                break
            self._advance()
        if any(self._pending):
            raise self._deadlock()
        return self._spans

    def _start_ready(self) -> None:
        heads = [(members[-1], q) for q, members in enumerate(self._pending) if members]
        for index, queue in sorted(heads):
            if self._may_start(queue, self._program.commands[index]):
                self._pending[queue].pop()
                fixed, flow = self._durations[index]
                self._running[queue] = _Running(index, self._now, self._now + fixed, flow, False)
                self._listener.started(index)

    def _may_start(self, queue: int, command: Command) -> bool:
        if queue in self._running:
            return False
        counts = self._counts
        for semaphore, value in command.waits:
            if semaphore >= len(counts) or counts[semaphore] < value:
                return False
        engine = type(command.instruction).ENGINE
        if self._overlap or engine not in (Engine.MTX, Engine.VEC):
            return True
        other = Engine.VEC if engine is Engine.MTX else Engine.MTX
        return semaphore_of(command.group, other) not in self._running

    def _advance(self) -> None:
        """To the next event, and past everything that happens then."""
        flows = [r for r in self._running.values() if r.flows]
        share = self._bytes_per_cycle / len(flows) if flows else 0.0
        events = [r.until for r in self._running.values() if not r.flows]
        events += [self._now + r.left / share for r in flows]
        then = min(events)
        for r in flows:
            r.left -= (then - self._now) * share
        self._now = then
        for queue, r in sorted(self._running.items()):
            if r.flows:
                if r.left <= TOLERANCE * share:
                    self._finish(queue, r)
            elif r.until <= then + TOLERANCE:
                if r.left:
                    r.flows = True
                else:
                    self._finish(queue, r)

    def _finish(self, queue: int, running: _Running) -> None:
        del self._running[queue]
        self._spans[running.index] = Span(running.start, self._now)
        self._counts[queue] += self._program.commands[running.index].signals
        self._listener.finished(running.index)

    def _deadlock(self) -> MachineFault:
        blocked = []
        for members in self._pending:
            if not members:
                continue
            index = members[-1]
            unmet = [
                f"{wait_text(w)} (now {self._counts[w.semaphore]})"
                if w.semaphore < len(self._counts)
                else wait_text(w)
                for w in self._program.commands[index].waits
                if w.semaphore >= len(self._counts) or self._counts[w.semaphore] < w.value
            ]
            blocked.append(f"{command_name(self._program, index)} waits for {', '.join(unmet)}")
        return MachineFault(f"deadlock: {'; '.join(blocked)}", code=DEADLOCK)


def whole_cycles(value: float) -> int:
    """Cycles rounded up, but for the rounding error of sums."""
    return math.ceil(value - TOLERANCE)


def total_flow(program: Program, target: Target) -> int:
    """DDR bandwidth, in bytes, that all transfers of a program take together."""
    return sum(duration(c, target).flow for c in program.commands)


def busy_cycles(program: Program, spans: Sequence[Span]) -> dict[tuple[int, Engine], int]:
    """Cycles that each engine in use was occupied, by group and engine."""
    busy: dict[tuple[int, Engine], float] = {}
    for command, span in zip(program.commands, spans, strict=True):
        key = (command.group, type(command.instruction).ENGINE)
        busy[key] = busy.get(key, 0.0) + span.end - span.start
    return {key: whole_cycles(busy[key]) for key in sorted(busy)}
