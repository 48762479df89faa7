"""Binary and text form: exact round trips, one-line errors, no surprise from damaged bytes."""

from __future__ import annotations

import dataclasses
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs

from tilewright.errors import ArtifactError, CompileError
from tilewright.program import Buffer, Command, Port, Program, assemble, decode, disassemble, encode
from tilewright.program.isa import Fill, Load, Wait
from tilewright.program.layout import FileHeader

LOAD = Load(ddr=64, sram=0, shape=(1, 1, 1, 16), ddr_strides=(0, 0, 0), sram_strides=(0, 0, 0))
FILL = Fill(y=32, shape=(1, 1, 2, 4), y_strides=(0, 0, 4, 1), type=0, value=-7)

SMALL = Program(
    target="ax650n",
    target_digest="ab12",
    mode="NPU1",
    groups=2,
    sram_bytes=4096,
    constants_bytes=64,
    ddr_bytes=128,
    inputs=(Port("im\nage;", 64, 16),),
    outputs=(Port('sco"res', 80, 8),),
    nodes=("conv é", "add"),
    buffers=(Buffer("x", 0, 0, 16, 0, 1), Buffer("w", -1, 64, 16, 0, 0)),
    commands=(
        Command(0, LOAD, (), True, 0, True),
        Command(1, FILL, (Wait(0, 1), Wait(7, 3)), False, 1, False),
    ),
)

SMALL_TEXT = r"""target "ax650n"
target_digest "ab12"
mode "NPU1"
groups 2
sram_bytes 4096
constants_bytes 64
ddr_bytes 128
input "im\nage;" address=0x40 bytes=16
output "sco\"res" address=0x50 bytes=8
node "conv é" ; 0
node "add" ; 1
buffer "x" g0 address=0x0 bytes=16 first=0 last=1
buffer "w" ddr address=0x40 bytes=16 first=0 last=0
g0 Load node=0 first signal ddr=0x40 sram=0x0 shape=1,1,1,16 ddr_strides=0,0,0 sram_strides=0,0,0 ; 0
g1 Fill node=1 wait=g0.load:1,g1.vec:3 y=0x20 shape=1,1,2,4 y_strides=0,0,4,1 type=0 value=-7 ; 1
"""  # noqa: E501


def test_text_form():
    assert disassemble(SMALL) == SMALL_TEXT
    assert assemble(SMALL_TEXT) == SMALL


@given(programs())
@settings(max_examples=150, deadline=None)
def test_round_trips(program):
    data = encode(program)
    assert decode(data) == program
    assert encode(decode(data)) == data
    text = disassemble(program)
    assert assemble(text) == program
    assert disassemble(assemble(text)) == text


def repaired(data: bytearray) -> bytes:
    """The file with size and checksum made right again, so that damage reaches the tables."""
    size = FileHeader.packed_size()
    if len(data) >= size:
        data[8:16] = len(data).to_bytes(8, "little")
        data[16:20] = zlib.crc32(data[size:]).to_bytes(4, "little")
    return bytes(data)


@given(programs(), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=400, deadline=None)
def test_damage_is_refused_or_read(program, rng: random.Random, cut: bool):
    data = bytearray(encode(program))
    if cut:
        del data[rng.randrange(len(data)) :]
    for _ in range(rng.randint(0, 4)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for damaged in (bytes(data), repaired(data)):
        try:
            found = decode(damaged)
        except ArtifactError:
            continue
        assert decode(encode(found)) == found


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(ArtifactError):
        decode(data)


def test_every_flipped_bit_is_noticed():
    data = encode(SMALL)
    for i in range(0, 8 * len(data), 3):
        bad = bytearray(data)
        bad[i // 8] ^= 1 << i % 8
        with pytest.raises(ArtifactError):
            decode(bytes(bad))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"ELF?" + d[4:], "does not begin with TWPG"),
        (lambda d: d[:4] + b"\x09" + d[5:], "version 9, this tool reads 1"),
        (lambda d: d[:-1], "bytes instead of"),
        (lambda d: d[:-1] + b"\x00", "checksum is wrong"),
        (lambda d: repaired(bytearray(d + b"\x00")), "1 bytes follow its end"),
        (lambda d: repaired(bytearray(d[:-3])), "ends too early"),
        (lambda d: b"", "ends too early"),
    ],
)
def test_damage_is_named(change, message):
    with pytest.raises(ArtifactError, match=message):
        decode(change(encode(SMALL)))


def test_wrong_references_are_refused():
    def refused(**changes):
        with pytest.raises(ArtifactError):
            decode(encode(dataclasses.replace(SMALL, **changes)))

    refused(commands=(Command(2, LOAD, (), True, 0, True),))
    refused(commands=(Command(0, LOAD, (), True, 2, True),))
    refused(buffers=(Buffer("x", 2, 0, 16, 0, 1),))
    refused(buffers=(Buffer("x", 0, 0, 16, 1, 0),))
    refused(buffers=(Buffer("x", 0, 0, 16, 0, 2),))


def test_values_that_do_not_fit_are_named():
    wide = dataclasses.replace(LOAD, ddr=2**32)
    with pytest.raises(
        CompileError, match=r"command 0 \(Load\): ddr = 4294967296 does not fit u32"
    ):
        encode(dataclasses.replace(SMALL, commands=(Command(0, wide, (), True, 0, True),)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("g0 Load", "g0 Lode", r"line 14: there is no instruction 'Lode'; did you mean 'Load'\?"),
        ("sram=0x0", "sram=zero", "line 14: 'zero' is not a number"),
        ("shape=1,1,1,16", "shape=1,16", r"Load.shape takes 4 values"),
        ("sram=0x0", "", "Load needs sram"),
        ("sram=0x0", "sram=0 sram=0", "sram is given twice"),
        ("sram=0x0", "sramm=0", "Load has no field 'sramm'; did you mean 'sram'"),
        ("sram=0x0", "sram=0 here", "'here' is not of the form field=value"),
        ("g0.load:1", "g0.lod:1", "'g0.lod:1' is not a wait"),
        ("node=0 ", "", "'' is not a number"),
        ("buffer", "bufer", "'bufer' begins no statement; did you mean 'buffer'"),
        ('node "add"', "node add", "a quoted name is expected"),
        ("g0 address=0x0", "sram address=0x0", "neither ddr nor a group"),
        ("bytes=16 first", "first", "the fields must be address, bytes, first, last"),
        ("groups 2\n", "", "the text has no line 'groups'"),
        ("groups 2", "groups two", "'two' is not a number"),
    ],
)
def test_text_errors_name_the_line(old, new, message):
    assert old in SMALL_TEXT
    with pytest.raises(ArtifactError, match=message):
        assemble(SMALL_TEXT.replace(old, new, 1))


@given(st.text(max_size=60), st.sampled_from(SMALL_TEXT.split("\n")))
def test_any_text_is_read_or_refused(text, line):
    for damaged in (SMALL_TEXT.replace(line, text), SMALL_TEXT.replace(line, line[:9] + text)):
        try:
            program = assemble(damaged)
        except ArtifactError:
            continue
        assert assemble(disassemble(program)) == program
