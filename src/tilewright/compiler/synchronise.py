"""Ordering between queues: from what each command reads and writes to semaphores.

Commands arrive in one order that would be right if they ran one after another.  Two commands of
different queues that touch the same bytes, one of them writing, must keep that order.  Vector
clocks tell which of these orders already follow from others; the rest become waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.compiler.boxes import overlap
from tilewright.ops.protocol import Region
from tilewright.program.isa import Instruction, Wait, semaphore_of
from tilewright.program.program import Buffer, Command

DDR = -1
"""The `space` of DDR; SRAM spaces are group numbers."""


class Storage(NamedTuple):
    """A buffer: a named byte range of one space.  Ranges may be reused by later buffers."""

    space: int
    name: str
    address: int
    bytes: int


class Access(NamedTuple):
    """What a command touches: a box of the tensor in a buffer, or all of it (`box` None)."""

    storage: Storage
    box: Region | None
    writes: bool


class Draft(NamedTuple):
    """A command before its waits are known; fields as in `program.Command`."""

    group: int
    instruction: Instruction
    accesses: tuple[Access, ...]
    node: int
    first: bool


Clock = tuple[int, ...]
"""For each queue, how many of its commands are known to be complete."""


class _Use(NamedTuple):
    box: Region | None
    writes: bool
    queue: int
    number: int


@dataclass
class _BufferState:
    """Accesses to a buffer so far, and what had to finish before it could be used at all."""

    birth: list[int]
    uses: list[_Use] = field(default_factory=list)
    first: int = 0
    last: int = 0


def synchronise(
    drafts: Sequence[Draft], groups: int
) -> tuple[tuple[Command, ...], tuple[Buffer, ...]]:
    """Commands with the waits and signals that keep every conflict in order, and the buffers."""
    queues = semaphore_of(groups, 0)  # type: ignore[arg-type]
    tracker = _Tracker(queues)
    waits: list[dict[int, int]] = []
    for index, draft in enumerate(drafts):
        queue = semaphore_of(draft.group, type(draft.instruction).ENGINE)
        waits.append(tracker.add(index, queue, draft.accesses))
    counts = _signal_counts(waits, queues)
    commands = []
    done = [0] * queues
    for draft, required in zip(drafts, waits, strict=True):
        queue = semaphore_of(draft.group, type(draft.instruction).ENGINE)
        done[queue] += 1
        commands.append(
            Command(
                draft.group,
                draft.instruction,
                tuple(Wait(q, counts[q][n]) for q, n in sorted(required.items())),
                done[queue] in counts[queue],
                draft.node,
                draft.first,
            )
        )
    return tuple(commands), tracker.buffers()


def _signal_counts(waits: Sequence[dict[int, int]], queues: int) -> list[dict[int, int]]:
    """For each queue: command number -> semaphore value, for the commands that are waited for."""
    awaited: list[set[int]] = [set() for _ in range(queues)]
    for required in waits:
        for queue, count in required.items():
            awaited[queue].add(count)
    return [{n: i + 1 for i, n in enumerate(sorted(numbers))} for numbers in awaited]


class _Tracker:
    """Vector clocks of the queues and the state of every buffer."""

    def __init__(self, queues: int) -> None:
        self._known: list[list[int]] = [[0] * queues for _ in range(queues)]
        self._clocks: list[list[Clock]] = [[] for _ in range(queues)]
        self._states: dict[Storage, _BufferState] = {}
        self._alive: dict[int, list[Storage]] = {}

    def add(self, index: int, queue: int, accesses: Sequence[Access]) -> dict[int, int]:
        """Append a command to its queue; queue -> command number that it must wait for."""
        required = [0] * len(self._known)
        for access in accesses:
            self._require(index, access, required)
        required[queue] = 0
        needed = {q: n for q, n in enumerate(required) if n > self._known[queue][q]}
        waits = {
            q: n
            for q, n in needed.items()
            if not any(self._clocks[o][m - 1][q] >= n for o, m in needed.items() if o != q)
        }
        known = self._known[queue]
        for q, n in waits.items():
            for other, count in enumerate(self._clocks[q][n - 1]):
                known[other] = max(known[other], count)
            known[q] = max(known[q], n)
        number = len(self._clocks[queue]) + 1
        self._clocks[queue].append(tuple(known))
        known[queue] = number
        for access in accesses:
            state = self._states[access.storage]
            state.uses.append(_Use(access.box, access.writes, queue, number))
            state.last = index
        return waits

    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer with the commands that touch it first and last."""
        return tuple(
            Buffer(s.name, s.space, s.address, s.bytes, state.first, state.last)
            for s, state in self._states.items()
        )

    def _require(self, index: int, access: Access, required: list[int]) -> None:
        state = self._states.get(access.storage)
        if state is None:
            state = self._open(index, access.storage)
        for queue, count in enumerate(state.birth):
            required[queue] = max(required[queue], count)
        for use in reversed(state.uses):
            if not (use.writes or access.writes) or use.number <= required[use.queue]:
                continue
            if use.box is None or access.box is None or overlap(use.box, access.box):
                required[use.queue] = use.number

    def _open(self, index: int, storage: Storage) -> _BufferState:
        """A new buffer waits for all that was done to the buffers whose bytes it takes over."""
        birth = [0] * len(self._known)
        alive = self._alive.setdefault(storage.space, [])
        kept: list[Storage] = []
        start, stop = storage.address, storage.address + storage.bytes
        for other in alive:
            other_stop = other.address + other.bytes
            if other_stop <= start or stop <= other.address:
                kept.append(other)
                continue
            old = self._states[other]
            for queue, count in enumerate(old.birth):
                birth[queue] = max(birth[queue], count)
            for use in old.uses:
                birth[use.queue] = max(birth[use.queue], use.number)
            if other.address < start or stop < other_stop:
                kept.append(other)
        self._alive[storage.space] = [*kept, storage]
        self._states[storage] = _BufferState(birth, first=index)
        return self._states[storage]
