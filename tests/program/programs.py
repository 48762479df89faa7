"""Hypothesis strategies of well-formed programs."""

from __future__ import annotations

from hypothesis import strategies as st

from tilewright.program.isa import INSTRUCTIONS, Wait
from tilewright.program.program import Buffer, Command, Port, Program

_RANGES = {
    "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "s16": (-(2**15), 2**15 - 1),
    "u32": (0, 2**32 - 1), "s32": (-(2**31), 2**31 - 1), "u64": (0, 2**64 - 1),
}  # fmt: skip

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def instructions(draw, classes=INSTRUCTIONS):
    cls = draw(st.sampled_from(classes))
    values = {}
    for name, wire in cls.wires().items():
        number = st.integers(*_RANGES[wire.type])
        values[name] = draw(number if wire.count is None else st.tuples(*[number] * wire.count))
    return cls(**values)


@st.composite
def programs(draw):
    groups = draw(st.integers(1, 255))
    nodes = tuple(draw(st.lists(NAMES, min_size=1, max_size=4)))
    waits = st.lists(st.builds(Wait, st.integers(0, 2**16 - 1), U32), max_size=3).map(tuple)
    command = st.builds(
        Command,
        group=st.integers(0, groups - 1),
        instruction=instructions(),
        waits=waits,
        signals=st.booleans(),
        node=st.integers(0, len(nodes) - 1),
        first=st.booleans(),
    )
    commands = tuple(draw(st.lists(command, max_size=5)))
    buffers = []
    if commands:
        index = st.integers(0, len(commands) - 1)
        for _ in range(draw(st.integers(0, 3))):
            first, last = sorted((draw(index), draw(index)))
            group = draw(st.integers(-1, groups - 1))
            buffers.append(Buffer(draw(NAMES), group, draw(U64), draw(U64), first, last))
    ports = st.lists(st.builds(Port, NAMES, U64, U64), max_size=2).map(tuple)
    return Program(
        target=draw(NAMES), target_digest=draw(NAMES), mode=draw(NAMES), groups=groups,
        sram_bytes=draw(U64), constants_bytes=draw(U64), ddr_bytes=draw(U64),
        inputs=draw(ports), outputs=draw(ports), nodes=nodes,
        buffers=tuple(buffers), commands=commands,
    )  # fmt: skip
