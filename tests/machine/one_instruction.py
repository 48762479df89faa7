"""Programs of one instruction: an image of SRAM is loaded, changed and stored."""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright.machine.checks import Checks
from tilewright.machine.machine import Machine
from tilewright.program.isa import Engine, Instruction, Load, Store, Wait, semaphore_of
from tilewright.program.program import Command, Port, Program
from tilewright.targets import load_target

TARGET = load_target("ax650n")
SIZE = 1 << 15
"""Bytes of the image."""


def whole(cls, size=SIZE, ddr=0, sram=0):
    return cls(
        ddr=ddr, sram=sram, shape=(1, 1, 1, size), ddr_strides=(0, 0, 0), sram_strides=(0, 0, 0)
    )


def program_of(instruction: Instruction, size: int = SIZE) -> Program:
    engine = semaphore_of(0, type(instruction).ENGINE)
    load = semaphore_of(0, Engine.LOAD)
    return Program(
        target=TARGET.name,
        target_digest=TARGET.digest,
        mode="NPU1",
        groups=1,
        sram_bytes=size,
        constants_bytes=0,
        ddr_bytes=2 * size,
        inputs=(Port("image", 0, size),),
        outputs=(Port("result", size, size),),
        nodes=("node",),
        buffers=(),
        commands=(
            Command(0, whole(Load, size), (), True, 0, True),
            Command(0, instruction, (Wait(load, 1),), True, 0, True),
            Command(
                0,
                whole(Store, size, ddr=size),
                (Wait(engine, 1 + (engine == load)),),
                True,
                0,
                True,
            ),
        ),
    )


def run_one(instruction: Instruction, image: bytes, checks=Checks) -> bytes:
    """SRAM after `instruction` has run on `image`."""
    program = program_of(instruction, len(image))
    machine = Machine(program, TARGET, b"", checks)
    return machine.run({"image": np.frombuffer(image, np.uint8)}).outputs["result"].tobytes()


def blank(cls, **fields):
    """An instruction whose other fields are 0."""
    zeros = {n: 0 if w.count is None else (0,) * w.count for n, w in cls.wires().items()}
    return cls(**{**zeros, **fields})


class Image:
    """SRAM under construction: arrays are placed one behind the other with gaps."""

    def __init__(self, rng: np.random.Generator, size: int = SIZE) -> None:
        self._rng = rng
        self.bytes = bytearray(rng.integers(0, 256, size, np.uint8).tobytes())
        self._end = 16

    def room(self, size: int, alignment: int = 8) -> int:
        """Address of `size` free bytes."""
        address = -(-(self._end + int(self._rng.integers(0, 9))) // alignment) * alignment
        self._end = address + size
        assert self._end <= len(self.bytes)
        return address

    def place(self, data: bytes, alignment: int = 8) -> int:
        address = self.room(len(data), alignment)
        self.bytes[address : address + len(data)] = data
        return address

    def box(self, shape, itemsize, *, contiguous_last=False):
        """Address and strides of a box with random gaps between its rows."""
        strides, step = [], itemsize
        for axis, n in enumerate(reversed(shape)):
            strides.append(step)
            gap = 0 if contiguous_last and axis == 0 else int(self._rng.integers(0, 3))
            step = step * n + gap * itemsize
        return self.room(step), tuple(reversed(strides))


def replaced(instruction, **fields):
    return dataclasses.replace(instruction, **fields)
