"""Occupancy of single instructions, against arithmetic done by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tilewright.graph import DType
from tilewright.program.isa import (
    INSTRUCTIONS,
    Add,
    Convolve,
    Deconvolve,
    Load,
    Lookup16,
    Rescale,
    Softmax,
)
from tilewright.targets import load_target
from tilewright.targets.cost import cycles, macs, transfer, transfer_bytes

AX = load_target("ax650n")
BARE = dataclasses.replace(AX, instruction_seconds=0.0, transfer_seconds=0.0)


def make(cls, **fields):
    """An instruction whose other fields are 0."""
    blank = {n: 0 if w.count is None else (0,) * w.count for n, w in cls.wires().items()}
    return cls(**{**blank, **fields})


def tile(cls=Convolve, rows=56, columns=56, cin=64, cout=64, kernel=(3, 3), groups=1, **fields):
    return make(
        cls, in_rows=rows, in_columns=columns, out_rows=rows, out_columns=columns,
        in_channels=cin, out_channels=cout, kernel=kernel, groups=groups, weight_type=DType.S8,
        **fields,
    )  # fmt: skip


def microseconds(instruction, target=BARE):
    return cycles(instruction, target) / 800


def near(value):
    return pytest.approx(value, abs=1.01 / 800)


def test_convolution_adds_its_epilogue():
    expected = 56 * 56 * 64 * 9 * 64 / 1.83e6 + 56 * 56 * 64 / 52e3
    assert microseconds(tile()) == near(expected)


def test_channels_are_rounded_to_the_array():
    assert macs(tile(cin=3, cout=20)) == 56 * 56 * 9 * 3 * 20
    expected = 56 * 56 * 9 * 8 * 32 / 1.83e6 + 56 * 56 * 20 / 52e3
    assert microseconds(tile(cin=3, cout=20)) == near(expected)


def test_depthwise_and_dense_have_their_own_rates():
    depthwise = 56 * 56 * 9 * 64 / 0.24e6 + 56 * 56 * 64 / 52e3
    assert microseconds(tile(groups=64)) == near(depthwise)
    dense = tile(rows=197, columns=1, cin=384, cout=384, kernel=(1, 1))
    assert microseconds(dense) == near(197 * 384 * 384 / 1.5e6 + 197 * 384 / 52e3)


def test_sixteen_bits_and_tables():
    wide = tile(input_type=DType.S16, output_type=DType.S16)
    expected = 56 * 56 * 64 * 9 * 64 * 2 / 1.83e6 + 56 * 56 * 64 * 2 / 52e3
    assert microseconds(wide) == near(expected)
    table = tile(table=64)
    assert microseconds(table) == near(microseconds(tile()) + 56 * 56 * 64 / 21e3)


def test_overlap_hides_the_shorter_part():
    overlapped = dataclasses.replace(BARE, vector_overlap=True)
    assert microseconds(tile(), overlapped) == near(56 * 56 * 64 * 9 * 64 / 1.83e6)
    thin = tile(cin=1, cout=64, kernel=(1, 1))
    assert microseconds(thin, overlapped) == near(56 * 56 * 64 / 52e3)


def test_transposed_convolution_counts_inputs():
    up = dataclasses.replace(tile(Deconvolve, kernel=(2, 2)), out_rows=112, out_columns=112)
    assert macs(up) == 56 * 56 * 4 * 64 * 64


def test_vector_classes():
    box = {"shape": (1, 1, 56, 64)}
    assert microseconds(make(Lookup16, **box)) == near(56 * 64 / 21e3)
    assert microseconds(make(Softmax, shape=(12, 197, 197))) == near(12 * 197 * 197 / 3.4e3)
    copied = make(Rescale, shape=(1, 1, 1, 1, 56, 64), types=(DType.S16, DType.S16))
    assert microseconds(copied) == near(56 * 64 * 2 / 43e3)
    assert cycles(make(Add, **box), BARE) == 1
    assert cycles(make(Add, **box), AX) == 8


def test_every_instruction_has_a_cost():
    for name in ("ax650n", "a311d", "tda4vm"):
        for cls in INSTRUCTIONS:
            ones = {n: 1 if w.count is None else (1,) * w.count for n, w in cls.wires().items()}
            assert cycles(cls(**ones), load_target(name)) >= 1


def load(shape, strides, ddr=0):
    return make(Load, ddr=ddr, shape=shape, ddr_strides=strides, sram_strides=strides)


@pytest.mark.parametrize(
    ("instruction", "runs", "ddr_bytes"),
    [
        (load((1, 1, 1, 1000), (0, 0, 0)), 1, 1024),
        (load((1, 1, 1, 64), (0, 0, 0), ddr=32), 1, 128),
        (load((2, 5, 10, 64), (3200, 640, 64)), 1, 6400),
        (load((1, 1, 10, 32), (0, 0, 128)), 10, 10 * 64 + 9 * 64),
        (load((1, 4, 10, 64), (0, 4096, 128)), 40, 40 * 64 + 39 * 64),
        (load((1, 1, 4, 30), (0, 0, 90)), 4, 320),
        (load((1, 1, 4, 30), (0, 0, 190)), 4, 4 * 64 + 4 * 32 + 3 * 64),
        (load((1, 3, 100, 8), (0, 8192, 24)), 300, 3 * 2432 + 2 * 64),
    ],
)
def test_transfers_pay_for_bursts_and_runs(instruction, runs, ddr_bytes):
    moved = transfer(instruction, AX)
    assert (moved.bytes, moved.runs, moved.ddr_bytes) == (
        math.prod(instruction.shape),
        runs,
        ddr_bytes,
    )
    assert transfer_bytes(instruction) == moved.bytes
    assert cycles(instruction, BARE) == math.ceil(ddr_bytes / (24.1e9 / 800e6))
    assert cycles(instruction, AX) == math.ceil(ddr_bytes / (24.1e9 / 800e6) + 80)
