from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.boxes import intersection
from tilewright.compiler.synchronise import Access, Draft, Storage, synchronise
from tilewright.ops.protocol import Span
from tilewright.program.isa import Fill, Load, Store, semaphore_of
from tilewright.program.program import Command

LOAD = Load(ddr=0, sram=0, shape=(1, 1, 1, 1), ddr_strides=(0, 0, 0), sram_strides=(0, 0, 0))
STORE = Store(ddr=0, sram=0, shape=(1, 1, 1, 1), ddr_strides=(0, 0, 0), sram_strides=(0, 0, 0))
FILL = Fill(y=0, shape=(1, 1, 1, 1), y_strides=(0, 0, 0, 0), type=0, value=0)


def draft(instruction: object, *accesses: Access, group: int = 0) -> Draft:
    return Draft(group, instruction, accesses, 0, False)  # type: ignore[arg-type]


def queue_of(command: Command) -> int:
    return semaphore_of(command.group, type(command.instruction).ENGINE)


def run_in_random_order(commands: tuple[Command, ...], seed: int) -> list[int]:
    """One legal order of completion: any queue whose head's waits are met may go next."""
    choose = random.Random(seed)
    queues: dict[int, list[int]] = {}
    for i, c in enumerate(commands):
        queues.setdefault(queue_of(c), []).append(i)
    counts: dict[int, int] = {}
    order: list[int] = []
    while any(queues.values()):
        ready = [
            q
            for q, members in queues.items()
            if members
            and all(counts.get(w.semaphore, 0) >= w.value for w in commands[members[0]].waits)
        ]
        assert ready, "deadlock"
        queue = choose.choice(ready)
        index = queues[queue].pop(0)
        counts[queue] = counts.get(queue, 0) + commands[index].signals
        order.append(index)
    return order


A, B = Storage(0, "a", 0, 100), Storage(0, "b", 50, 100)
"""Two buffers that share bytes 50..100: b takes them over from a."""


@st.composite
def programs(draw: st.DrawFn) -> list[Draft]:
    drafts = []
    split = draw(st.integers(1, 12))
    for i in range(draw(st.integers(1, 24))):
        storage = A if i < split else B
        start = draw(st.integers(0, 90))
        box = (Span(start, start + draw(st.integers(1, 10))),)
        whole = draw(st.booleans())
        access = Access(storage, None if whole else box, draw(st.booleans()))
        instruction = draw(st.sampled_from([LOAD, STORE, FILL]))
        drafts.append(draft(instruction, access, group=draw(st.integers(0, 1))))
    return drafts


def conflict(a: Access, b: Access) -> bool:
    if a.storage != b.storage:
        return True
    if not (a.writes or b.writes):
        return False
    return a.box is None or b.box is None or intersection(a.box, b.box) is not None


@settings(deadline=None)
@given(programs(), st.integers(0, 1000))
def test_conflicting_commands_keep_their_order_whatever_runs_first(
    drafts: list[Draft], seed: int
) -> None:
    commands, _ = synchronise(drafts, groups=2)
    position = {index: at for at, index in enumerate(run_in_random_order(commands, seed))}
    for j, later in enumerate(drafts):
        for i, earlier in enumerate(drafts[:j]):
            if conflict(earlier.accesses[0], later.accesses[0]):
                assert position[i] < position[j]


def test_independent_commands_do_not_wait() -> None:
    other = Storage(0, "c", 400, 10)
    commands, _ = synchronise(
        [draft(LOAD, Access(A, None, True)), draft(FILL, Access(other, None, True))], 1
    )
    assert all(not c.waits and not c.signals for c in commands)


def test_a_wait_that_follows_from_another_is_left_out() -> None:
    c = Storage(0, "c", 400, 10)
    drafts = [
        draft(LOAD, Access(A, None, True)),
        draft(FILL, Access(A, None, False), Access(c, None, True)),
        draft(STORE, Access(c, None, False), Access(A, None, False)),
    ]
    commands, _ = synchronise(drafts, 1)
    assert [len(c.waits) for c in commands] == [0, 1, 1]
    assert commands[2].waits[0].semaphore == queue_of(commands[1])


def test_buffers_tell_the_commands_that_touch_them() -> None:
    drafts = [draft(LOAD, Access(A, None, True)), draft(FILL, Access(A, None, False))]
    _, buffers = synchronise(drafts, 1)
    assert [(b.name, b.first, b.last) for b in buffers] == [("a", 0, 1)]
