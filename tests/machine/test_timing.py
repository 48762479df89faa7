"""Timelines and lower bounds against arithmetic done by hand, and their relation."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest
from hand_made import OVERLAPPED, ROUND, add, after, command, convolve, fill, load, program, store

from tilewright.machine.machine import Machine
from tilewright.machine.operands import operands
from tilewright.machine.timing import lower_bound, simulate_time
from tilewright.machine.trace import trace_events, trace_json
from tilewright.program.isa import Engine
from tilewright.targets.cost import cycles

START = 1000
"""The fixed time of a run."""


def spans(made, target=ROUND):
    found = simulate_time(made, target).spans
    return [(round(s.start - START, 6), round(s.end - START, 6)) for s in found]


def test_empty_program():
    timeline = simulate_time(program(), ROUND)
    assert (timeline.max_cycle, timeline.engine_busy, timeline.spans) == (START, {}, ())
    assert lower_bound(program(), ROUND).cycle == START


def test_one_transfer():
    """10 cycles to the first byte, 640 bytes at 10 a cycle."""
    made = program(command(load(64, 0, 640)))
    assert spans(made) == [(0, 74)]
    timeline = simulate_time(made, ROUND)
    assert timeline.max_cycle == START + 74
    assert timeline.engine_busy == {(0, Engine.LOAD): 74}
    assert timeline.ddr_bytes == 640


def test_transfers_share_ddr_equally():
    """Both flow from 10 on at 5 bytes a cycle; after 128 cycles one goes on alone with 640 left."""
    made = program(command(load(64, 0, 640)), command(load(64, 0, 1280), group=1))
    assert spans(made) == [(0, 138), (0, 202)]


def test_a_late_transfer_halves_the_bandwidth_from_then_on():
    """A store starts at 50 and flows from 60; by then 500 of the load's 1280 bytes are there."""
    made = program(
        command(fill(3000, 50)),
        command(load(64, 0, 1280)),
        command(store(1088, 3000, 640), after("g0.vec")),
    )
    loaded, stored = spans(made)[1:]
    # 780 left at 60, 640 of them at 5 a cycle until the store ends at 188, then 140 at 10.
    assert loaded == (0, 202)
    assert stored == (50, 188)


def test_a_queue_runs_in_order():
    made = program(command(load(64, 0, 640)), command(load(64, 1024, 640)))
    assert spans(made) == [(0, 74), (74, 148)]


def test_waits_and_engines():
    made = program(
        command(load(64, 0, 640)),
        command(fill(2048, 30)),
        command(add(0, 320, 3000, 20), after("g0.load")),
        command(store(1088, 3000, 64), after("g0.vec", 2)),
    )
    assert spans(made) == [(0, 74), (0, 30), (74, 114), (114, 130.4)]
    assert simulate_time(made, ROUND).max_cycle == START + 131


def test_signals_count_only_where_sent():
    made = program(
        command(fill(0, 10), signals=False),
        command(fill(16, 10)),
        command(store(1088, 0, 16), after("g0.vec", 1)),
    )
    assert spans(made)[2][0] == 20


CONVOLVE = convolve(0, 1024, 1028, 2048, 50)


def test_matrix_and_vector_exclude_each_other():
    made = program(command(CONVOLVE), command(fill(3000, 30)))
    assert spans(made) == [(0, 50), (50, 80)]
    assert spans(made, OVERLAPPED) == [(0, 50), (0, 30)]
    apart = program(command(CONVOLVE), command(fill(3000, 30), group=1))
    assert spans(apart) == [(0, 50), (0, 30)]


def test_the_earlier_of_two_ready_commands_starts():
    made = program(command(fill(3000, 30)), command(CONVOLVE), command(fill(3000, 30)))
    assert spans(made) == [(0, 30), (30, 80), (80, 110)]
    blocked = program(
        command(fill(3000, 30), after("g0.load")), command(CONVOLVE), command(load(64, 0, 64))
    )
    assert spans(blocked) == [(50, 80), (0, 50), (0, 16.4)]


def test_operators_cost_once_where_they_compute():
    made = program(
        command(load(64, 0, 640), first=True),
        command(CONVOLVE, after("g0.load"), first=True),
        command(CONVOLVE),
        command(fill(3000, 30), first=True, node=1),
    )
    assert spans(made) == [(0, 74), (130, 280), (280, 330), (0, 130)]


def test_lower_bound_by_hand():
    """One operator reads a load, another its result; other work makes engine and DDR busier."""
    chain = (
        command(load(64, 0, 640)),
        command(add(0, 100, 2048, 100), after("g0.load"), first=True),
        command(add(2048, 2048, 3000, 50), first=True, node=1),
        command(store(1088, 3000, 50), after("g0.vec", 2)),
    )
    bound = lower_bound(program(*chain), ROUND)
    stored = 10 + 6.4  # 50 bytes take a burst of 64
    assert bound.path == 74 + (100 + 200) + (100 + 100) + int(stored)
    assert bound.engine == 300 + 200
    assert bound.ddr == int((640 + 64) / 10)
    assert bound == (START + bound.path, START, bound.engine, bound.ddr, bound.path)
    busy = program(*chain, command(fill(3900, 100)), command(CONVOLVE))
    assert lower_bound(busy, ROUND).engine == 500 + 100 + 50
    assert lower_bound(busy, OVERLAPPED).engine == 500 + 100
    heavy = program(*chain, *(command(load(64, 0, 1024), group=g) for g in (1, 2) * 9))
    assert lower_bound(heavy, ROUND).ddr == int((640 + 64 + 18 * 1024) / 10)
    assert lower_bound(heavy, ROUND).cycle == START + int((640 + 64 + 18 * 1024) / 10)


def test_the_bounds_path_follows_data_and_not_the_schedule():
    """A needless wait and a queue's order lengthen the timeline and not the path."""
    made = program(
        command(fill(0, 100)),
        command(fill(1000, 100)),
        command(store(1088, 0, 64), after("g0.vec", 2)),
    )
    assert spans(made)[2] == (200, 216.4)
    assert lower_bound(made, ROUND).path == 100 + 16


def test_the_path_holds_the_fixed_time_of_an_operators_later_tiles():
    """The second tile needs no data, but its operator has begun with the first."""
    made = program(command(fill(0, 10), first=True), command(fill(64, 40)))
    assert lower_bound(made, ROUND).path == 100 + 40
    with_data = program(
        command(load(64, 0, 640)),
        command(add(0, 0, 2048, 10), after("g0.load"), first=True),
        command(fill(64, 300)),
    )
    assert lower_bound(with_data, ROUND).path == 74 + 100 + 300


def random_program(seed):
    """Commands at random places that wait for what they read, and for more now and then."""
    rng = random.Random(seed)
    commands, positions = [], []
    counts = {}
    for _ in range(40):
        group = rng.randrange(3)
        made = rng.choice(
            [
                load(64, 64 * rng.randrange(16), rng.randrange(1, 900)),
                load(1088, 64 * rng.randrange(16), rng.randrange(1, 900)),
                store(1088, 64 * rng.randrange(16), rng.randrange(1, 900)),
                fill(64 * rng.randrange(32), rng.randrange(1, 400)),
                add(0, 512, 1024 + 64 * rng.randrange(8), rng.randrange(1, 200)),
                convolve(0, 1024, 1028, 2048, rng.randrange(1, 400)),
            ]
        )
        waits = {
            queue: rng.randrange(1, n + 1) for queue, n in counts.items() if rng.random() < 0.1
        }
        for other, queue, position in positions:
            if reads_from(made, group, other):
                waits[queue] = max(waits.get(queue, 0), position)
        queue = f"g{group}.{type(made).ENGINE.name.lower()}"
        counts[queue] = counts.get(queue, 0) + 1
        needed = [after(q, n) for q, n in sorted(waits.items()) if q != queue]
        commands.append(command(made, *needed, group=group, first=rng.random() < 0.2))
        positions.append((commands[-1], queue, counts[queue]))
    return program(*commands)


def reads_from(instruction, group, other):
    return any(
        a.in_ddr == b.in_ddr and (a.in_ddr or group == other.group) and a.overlap(b) is not None
        for a in operands(instruction).reads.values()
        for b in operands(other.instruction).writes.values()
    )


@pytest.mark.parametrize("target", [ROUND, OVERLAPPED], ids=["exclusive", "overlapped"])
def test_no_timeline_beats_its_bound(target):
    for seed in range(40):
        made = random_program(seed)
        timeline = simulate_time(made, target)
        assert lower_bound(made, target).cycle <= timeline.max_cycle
        for c, span in zip(made.commands, timeline.spans, strict=True):
            extra = 100 if c.first and type(c.instruction).ENGINE in (Engine.MTX, Engine.VEC) else 0
            assert span.end - span.start >= cycles(c.instruction, target) - 1 + extra - 1e-6
        assert max(timeline.engine_busy.values()) <= timeline.max_cycle - START
        assert timeline == simulate_time(made, target)


def test_the_machine_keeps_the_same_time():
    made = program(
        command(load(64, 0, 640)), command(add(0, 320, 3000, 20), after("g0.load"), first=True)
    )
    result = Machine(made, ROUND, bytes(64)).run({"x": np.zeros(1024, np.uint8)})
    assert result.timeline == simulate_time(made, ROUND)
    assert result.max_cycle == START + 74 + 100 + 40


def test_trace_follows_the_event_format():
    made = dataclasses.replace(random_program(3), nodes=("conv é", "sum"))
    timeline = simulate_time(made, ROUND)
    text = trace_json(made, timeline, ROUND)
    assert text == trace_json(made, simulate_time(made, ROUND), ROUND)
    document = json.loads(text)
    assert document["otherData"]["max_cycle"] == timeline.max_cycle
    events = document["traceEvents"]
    assert events == trace_events(made, timeline, ROUND)
    named = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "group 0", "group 1", "group 2",
    }  # fmt: skip
    work = [e for e in events if e["ph"] == "X"]
    assert len(work) == len(made.commands)
    for e, c, span in zip(work, made.commands, timeline.spans, strict=True):
        assert set(e) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert e["name"] == made.nodes[c.node]
        assert named[e["pid"], e["tid"]] == e["cat"] == type(c.instruction).ENGINE.name
        assert e["ts"] == pytest.approx(span.start / 1000, abs=1e-3)
        assert e["dur"] == pytest.approx((span.end - span.start) / 1000, abs=1e-3)
        assert e["args"]["instruction"] == type(c.instruction).__name__
