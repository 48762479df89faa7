"""The instruction table is sound: nothing overlaps, nothing is forgotten."""

from __future__ import annotations

import dataclasses
import inspect
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from programs import instructions

from tilewright.program import isa
from tilewright.program.layout import FORMAT_RECORDS, INSTRUCTION_OF
from tilewright.program.reference_page import CONSTANT_RECORDS, reference_page
from tilewright.records import WIRE_FORMATS, Record

COMMAND_WORDS = {"node", "first", "signal", "wait"}


def leaves(cls):
    return [leaf for sub in cls.__subclasses__() for leaf in (leaves(sub) or [sub])]


def test_every_instruction_is_listed_once():
    declared = {
        c
        for _, c in inspect.getmembers(isa, inspect.isclass)
        if issubclass(c, isa.Instruction) and "OPCODE" in vars(c)
    }
    assert set(isa.INSTRUCTIONS) == declared
    assert len(isa.INSTRUCTIONS) == len(declared)
    assert set(leaves(isa.Instruction)) >= declared


def test_opcodes_are_unique_bytes():
    opcodes = [c.OPCODE for c in isa.INSTRUCTIONS]
    assert len(set(opcodes)) == len(opcodes) == len(INSTRUCTION_OF)
    assert all(0 < o < 256 for o in opcodes)


@pytest.mark.parametrize("cls", (*isa.INSTRUCTIONS, *CONSTANT_RECORDS, *FORMAT_RECORDS))
def test_fields_are_declared_documented_and_packed(cls: type[Record]):
    wires = cls.wires()
    assert [f.name for f in dataclasses.fields(cls)] == list(wires)
    assert all(w.type in WIRE_FORMATS and w.doc and (w.count or 1) >= 1 for w in wires.values())
    assert sum(w.size for w in wires.values()) == cls.packed_size()
    assert cls.numpy_dtype().itemsize == cls.packed_size()
    assert cls.__doc__ and not cls.__doc__.startswith(cls.__name__ + "(")


@pytest.mark.parametrize("cls", isa.INSTRUCTIONS)
def test_text_names_do_not_collide(cls):
    assert not COMMAND_WORDS & set(cls.wires())
    assert cls.__name__.lower() not in {
        c.__name__.lower() for c in isa.INSTRUCTIONS if c is not cls
    }
    assert isinstance(cls.ENGINE, isa.Engine)


@pytest.mark.parametrize("cls", isa.INSTRUCTIONS)
def test_widths_are_enforced(cls):
    limits = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "s16": 15, "s32": 31}
    good = {n: 0 if w.count is None else (0,) * w.count for n, w in cls.wires().items()}
    for name, wire in cls.wires().items():
        top = 2 ** limits[wire.type]
        for value, fits in ((top - 1, True), (top, False)):
            stored = value if wire.count is None else (value,) * wire.count
            record = cls(**{**good, name: stored})
            if fits:
                assert cls.unpack(record.pack()) == record
            else:
                with pytest.raises(struct.error):
                    record.pack()


@given(instructions())
@settings(max_examples=200)
def test_record_round_trip(instruction):
    assert type(instruction).unpack(instruction.pack()) == instruction


def test_reference_page_covers_every_field():
    page = reference_page()
    for cls in (*isa.INSTRUCTIONS, *CONSTANT_RECORDS, *FORMAT_RECORDS):
        section = page.split(f"### {cls.__name__}\n", 1)[1].split("\n##", 1)[0]
        assert all(f"| `{name}` |" in section for name in cls.wires())
    assert page == reference_page()


def test_reference_page_is_up_to_date():
    committed = Path(__file__).parents[2] / "docs" / "isa.md"
    assert committed.read_text("utf-8") == reference_page()
