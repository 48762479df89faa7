"""Every way in which the machine stops, each provoked by a bad program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hand_made import ROUND, add, after, command, convolve, fill, load, program, store
from one_instruction import TARGET, Image, blank, run_one

from tilewright.errors import MachineFault
from tilewright.graph import DType
from tilewright.machine.checks import Checks, NoChecks
from tilewright.machine.machine import Machine
from tilewright.program import isa
from tilewright.program.isa import Wait
from tilewright.program.program import Buffer, Port

X = {"x": np.zeros(1024, np.uint8)}


def run(made, checks=Checks, inputs=X, target=ROUND):
    return Machine(made, target, bytes(made.constants_bytes), checks).run(inputs)


def stops(made, message, code, checks=Checks):
    with pytest.raises(MachineFault, match=message) as caught:
        run(made, checks)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


FETCH = command(load(64, 0, 1024))


def test_a_good_program_runs():
    made = program(
        FETCH,
        command(store(1088, 0, 1024), after("g0.load")),
        outputs=(Port("y", 1088, 1024),),
    )
    data = np.arange(1024, dtype=np.uint16).astype(np.uint8)
    assert (run(made, inputs={"x": data}).outputs["y"] == data).all()


def test_uninitialised_sram():
    text = (
        r"command 1 \(Store, STORE of group 0, node 'conv'\) reads uninitialised SRAM as sram "
        "at address 0x400"
    )
    made = program(FETCH, command(store(1088, 0, 1025), after("g0.load")))
    stops(made, text, "TW-4003")
    run(made, NoChecks)


def test_other_groups_do_not_see_a_groups_sram():
    made = program(FETCH, command(store(1088, 0, 4), after("g0.load"), group=1))
    stops(made, "STORE of group 1.*uninitialised SRAM", "TW-4003")


def test_uninitialised_ddr_and_output():
    stops(
        program(command(load(1088, 0, 4))), "uninitialised DDR as ddr at address 0x440", "TW-4003"
    )
    made = program(
        FETCH, command(store(1088, 0, 10), after("g0.load")), outputs=(Port("y", 1088, 16),)
    )
    stops(made, "output 'y' was never written at address 0x44a", "TW-4003")


def test_results_count_when_they_are_visible():
    """Two stores to different places, the reader waits for the first only."""
    made = program(
        FETCH,
        command(store(1088, 0, 16), after("g0.load")),
        command(store(2048, 0, 1024)),
        command(load(2048, 2048, 16), after("g0.store", 1)),
    )
    stops(made, "command 3 .* reads uninitialised DDR", "TW-4003")


@pytest.mark.parametrize(
    ("instruction", "text"),
    [
        (load(64, 4000, 97), "reaches 0x1001 of 0x1000 bytes with sram at address 0xfa0"),
        (load(8190, 0, 3), "reaches 0x2001 of 0x2000 bytes with ddr"),
        (fill(4096, 1), "reaches 0x1001"),
        (add(0, 0, 4000, 97), "with y"),
    ],
)
def test_out_of_range(instruction, text):
    stops(program(command(instruction)), text, "TW-4002", NoChecks)


def test_misaligned():
    odd = blank(isa.Fill, y=3, shape=(1, 1, 1, 2), y_strides=(0, 0, 0, 2), type=DType.S16)
    stops(program(command(odd)), "needs y aligned to 2 bytes at address 0x3", "TW-4004")
    records = convolve(0, 100, 102, 200, 4)
    stops(program(command(records)), "needs channels aligned to 4 bytes", "TW-4004")
    made = program(FETCH, buffers=(Buffer("t", 0, 32, 64, 0, 0),))
    stops(made, "buffer 't' in SRAM of group 0 is not aligned to 64 bytes", "TW-4004")


def test_constants_are_read_only():
    made = program(FETCH, command(store(63, 0, 4), after("g0.load")))
    stops(made, "writes to the constants at address 0x3f", "TW-4005")


def test_buffers_that_live_together():
    clash = (Buffer("a", 0, 0, 65, 0, 1), Buffer("b", 0, 64, 64, 1, 1))
    made = program(FETCH, FETCH, buffers=clash)
    stops(made, "buffer 'b' in SRAM of group 0 overlaps 'a' while both live", "TW-4006")
    beyond = program(FETCH, buffers=(Buffer("a", -1, 8128, 65, 0, 0),))
    stops(beyond, "buffer 'a' in DDR ends beyond 8192 bytes", "TW-4006")
    apart = (Buffer("a", 0, 0, 1024, 0, 0), Buffer("b", 0, 0, 1024, 1, 1))
    run(program(FETCH, FETCH, buffers=apart))


RACES = {
    "reads what is being written by": (FETCH, command(add(0, 0, 2048, 8))),
    "writes what is being written by": (FETCH, command(fill(1000, 100))),
    "writes what is being read by": (
        FETCH,
        command(store(1088, 0, 1024), after("g0.load")),
        command(fill(1000, 100), after("g0.load")),
    ),
}


@pytest.mark.parametrize("kind", RACES)
def test_races(kind):
    made = program(*RACES[kind])
    if kind.startswith("reads"):
        # What is written in flight is not there yet; give the bytes an earlier value.
        earlier = command(load(64, 0, 1024))
        made = program(earlier, FETCH, command(add(0, 0, 2048, 8), after("g0.load", 1)))
    stops(made, f"{kind} command \\d", "TW-4007")
    run(made, NoChecks)


def test_a_race_needs_a_shared_byte():
    """Two writers of interleaved columns touch the same rows and no common byte."""
    even = blank(isa.Fill, y=0, shape=(1, 1, 100, 1), y_strides=(0, 0, 2, 1))
    columns = isa.Load(64, 1, (1, 1, 100, 1), (0, 0, 1), (0, 0, 2))
    run(program(command(columns), command(even)))
    columns = dataclasses.replace(columns, sram=2)
    stops(program(command(columns), command(even)), "command 1 .* at address 0x2", "TW-4007")


def test_own_input():
    made = program(FETCH, command(add(0, 512, 4, 16), after("g0.load")))
    stops(made, "writes y over its own a at address 0x4", "TW-4007")
    run(program(FETCH, command(add(0, 512, 0, 16), after("g0.load"))))


def test_a_buffer_taken_over_too_early():
    """The second load waits for nothing and replaces what the store still wants."""
    made = program(
        FETCH,
        command(store(1088, 0, 1024), after("g0.load", 2)),
        FETCH,
        buffers=(Buffer("old", 0, 0, 1024, 0, 1), Buffer("new", 0, 0, 1024, 2, 2)),
    )
    stops(made, "command 1 .* uses buffer 'old' after 'new' took over its bytes", "TW-4007")


def test_what_an_earlier_buffer_left_is_not_read():
    made = program(
        FETCH,
        command(store(1088, 0, 16), after("g0.load")),
        buffers=(Buffer("old", 0, 0, 1024, 0, 0), Buffer("new", 0, 0, 1024, 1, 1)),
    )
    stops(made, "uninitialised SRAM", "TW-4003")


def test_deadlock_says_who_waits_for_what():
    made = program(
        command(fill(0, 4), after("g0.load", 2)), command(load(64, 64, 4)),
        command(load(64, 128, 4), after("g0.vec")),
    )  # fmt: skip
    text = (
        r"deadlock: command 2 \(Load, LOAD of group 0, node 'conv'\) waits for g0.vec:1 \(now 0\); "
        r"command 0 \(Fill, VEC of group 0, node 'conv'\) waits for g0.load:2 \(now 1\)"
    )
    stops(made, text, "TW-4008")


def test_semaphores_and_groups_that_do_not_exist():
    made = program(command(fill(0, 4), Wait(12, 1)))
    stops(made, "waits for semaphore 12 of 12", "TW-4009")
    stops(program(command(fill(0, 4), group=3)), "is of group 3", "TW-4001")


def test_another_target():
    made = program(FETCH)
    with pytest.raises(MachineFault, match="in another description") as caught:
        Machine(made, TARGET, bytes(64))
    assert caught.value.code == "TW-4010"
    stops(program(FETCH, groups=4), "needs 4 groups", "TW-4010")
    stops(program(FETCH, sram_bytes=2**23), "needs 3 groups of 8388608 bytes", "TW-4010")


def test_constants_and_ports():
    made = program(FETCH)
    with pytest.raises(MachineFault, match="needs 64 bytes of constants, not 65"):
        Machine(made, ROUND, bytes(65))
    for inputs, text in (
        ({}, "input 'x' is missing"),
        ({"x": np.zeros(3, np.uint8)}, "input 'x' has 3 bytes, not 1024"),
        ({**X, "z": X["x"]}, "has no input 'z'"),
    ):
        with pytest.raises(MachineFault, match=text):
            run(made, inputs=inputs)
    stops(program(FETCH, outputs=(Port("y", 8190, 3),)), "port 'y' lies outside DDR", "TW-4011")


BOX = {"shape": (1, 1, 1, 4), "y_strides": (0, 0, 0, 1)}
TILE = convolve(64, 256, 512, 1024, 4)
POOL = {
    "input": 64, "output": 1024, "in_rows": 1, "in_columns": 4, "channels": 1,
    "in_strides": (4, 1), "out_rows": 1, "out_columns": 4, "out_strides": (4, 1),
    "types": (0, 0), "clamp": (0, 255),
}  # fmt: skip
WINDOW = {"kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1)}


@pytest.mark.parametrize(
    ("instruction", "text"),
    [
        (load(64, 0, 0), "has an empty ddr"),
        (blank(isa.Fill, **BOX, type=9), "has the type code 9"),
        (blank(isa.Rescale, types=(3, 0), shape=(1,) * 6), "has the type code 3"),
        (blank(isa.Fill, shape=(1, 1, 2, 4), y_strides=(0, 0, 0, 1)), "writes y over itself"),
        (dataclasses.replace(TILE, groups=0), "splits 1 and 1 channels in 0 groups"),
        (dataclasses.replace(TILE, out_channels=3, groups=2), "splits 1 and 3 channels"),
        (dataclasses.replace(TILE, stride=(0, 1)), "a kernel, stride or dilation of 0"),
        (blank(isa.MaxPool, **POOL), "has a window, stride or dilation of 0"),
        (blank(isa.Fill, **BOX, type=0, value=256), "fills with 256, which u8 cannot hold"),
    ],
)
def test_illegal_instructions(instruction, text):
    stops(program(command(instruction)), text, "TW-4001", NoChecks)


def executed(instruction, text, image=bytes(1 << 12)):
    with pytest.raises(MachineFault, match=text) as caught:
        run_one(instruction, image)
    assert caught.value.code == "TW-4001"


def test_values_that_the_arithmetic_refuses():
    executed(dataclasses.replace(add(64, 96, 0, 4), shift=0), "a shift outside 1..62")
    executed(dataclasses.replace(add(64, 96, 0, 4), shift=63), "a shift outside 1..62")
    executed(dataclasses.replace(add(64, 96, 0, 4), clamp=(-1, 3)), "clamps to values that u8")
    product = blank(isa.Multiply, a=64, b=96, shape=(1, 1, 1, 4), types=(0, 0, 0), shift=63)
    executed(dataclasses.replace(product, y_strides=(0, 0, 0, 1)), "a shift outside 1..62")
    average = blank(isa.AveragePool, **POOL, **WINDOW, counted=(0, 1, 0, 4), count_entries=2)
    executed(average, "no record for a window of 1 elements")
    resize = blank(isa.Resize, **POOL, taps=1, origin=(1, 0), rows=128, columns=192, shift=20)
    executed(resize, "reads rows or columns that are not present")


def test_r24_takes_38_bits():
    ram = Image(np.random.default_rng(0))
    record = isa.ChannelRecord(0, 1 << 7, 40, 0, 1 << 23, 0, 255)
    channels = ram.place(record.pack())
    tile = dataclasses.replace(convolve(64, 256, 0, 1024, 4), channels=channels)
    executed(tile, "rescales a value of more than 38 bits", bytes(ram.bytes))
