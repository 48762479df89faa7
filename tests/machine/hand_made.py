"""Small programs written by hand for a target with round numbers."""

from __future__ import annotations

import dataclasses
import math

from tilewright.graph import DType
from tilewright.program.isa import Add, Convolve, Engine, Fill, Load, Store, Wait, semaphore_of
from tilewright.program.program import Command, Port, Program
from tilewright.targets import MatrixRates, VectorRates, load_target

ROUND = dataclasses.replace(
    load_target("ax650n"),
    clock_hz=1e9,
    ddr_bytes_per_second=10e9,
    transfer_seconds=10e-9,
    instruction_seconds=0.0,
    operator_seconds=100e-9,
    run_seconds=1e-6,
    matrix=MatrixRates(1e9, 1e9, 1e9, 1, 1, 1.0),
    vector=VectorRates(1e9, 1e9, 1e9, math.inf, 1e9, 1e9),
)
"""1 cycle a nanosecond, 10 bytes of DDR a cycle, 10 cycles before a transfer's first byte, 1000
cycles before a run, 100 for an operator; a MAC, an element, a byte copied in SRAM take one each."""

OVERLAPPED = dataclasses.replace(ROUND, vector_overlap=True)


def load(ddr, sram, size):
    return Load(ddr, sram, (1, 1, 1, size), (0, 0, 0), (0, 0, 0))


def store(ddr, sram, size):
    return Store(ddr, sram, (1, 1, 1, size), (0, 0, 0), (0, 0, 0))


def fill(y, size, value=1):
    """`size` cycles of VEC."""
    return Fill(y, (1, 1, 1, size), (0, 0, 0, 1), DType.U8, value)


def add(a, b, y, size):
    """`2 * size` cycles of VEC."""
    strides = (0, 0, 0, 1)
    return Add(
        a, b, y, (1, 1, 1, size), strides, strides, strides, (DType.U8,) * 3, (0, 0, 0),
        1 << 20, 1 << 20, 21, (0, 255),
    )  # fmt: skip


def convolve(x, weights, channels, y, macs):
    """`macs` cycles of MTX: a 1x1 convolution of `macs` pixels with one channel each side."""
    return Convolve(
        input=x, output=y, weights=weights, channels=channels, table=0, in_rows=1,
        in_columns=macs, in_channels=1, in_strides=(macs, 1), out_rows=1, out_columns=macs,
        out_channels=1, out_strides=(macs, 1), groups=1, kernel=(1, 1), stride=(1, 1),
        dilation=(1, 1), pad=(0, 0), input_type=DType.U8, weight_type=DType.S8,
        output_type=DType.U8, pre_shift=0, input_zero=0, weight_zero=0, output_zero=0,
        table_shift=0, table_multiplier=0,
    )  # fmt: skip


def after(queue, value=1):
    """A wait: `after("g0.load", 2)`."""
    group, _, engine = queue.partition(".")
    return Wait(semaphore_of(int(group[1:]), Engine[engine.upper()]), value)


def command(instruction, *waits, group=0, node=0, first=False, signals=True):
    return Command(group, instruction, waits, signals, node, first)


def program(*commands, target=ROUND, **changes):
    """Input at DDR 64, output at 1088, 1024 bytes each; 64 bytes of constants before them."""
    fields = {
        "target": target.name, "target_digest": target.digest, "mode": "NPU3", "groups": 3,
        "sram_bytes": 4096, "constants_bytes": 64, "ddr_bytes": 8192,
        "inputs": (Port("x", 64, 1024),), "outputs": (), "nodes": ("conv", "sum"),
        "buffers": (), "commands": tuple(commands),
    }  # fmt: skip
    return Program(**{**fields, **changes})
