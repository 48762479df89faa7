"""What the machine watches for while a program runs.

The compiler proves the same things before; these checks share nothing with it and look at what
really happens, byte by byte.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tilewright.errors import MachineFault
from tilewright.machine.boxes import DDR, Box
from tilewright.machine.fault import (
    BUFFERS,
    CONSTANTS,
    MISALIGNED,
    RACE,
    UNINITIALISED,
    command_name,
    fault,
)
from tilewright.machine.operands import Operands
from tilewright.program.program import Buffer, Command, Program
from tilewright.targets import Target


class Watch(Protocol):
    """An observer of one run; it raises MachineFault."""

    def started(self, index: int) -> None: ...

    def finished(self, index: int) -> None: ...

    def ended(self) -> None: ...


class WatchMaker(Protocol):
    """Makes the observer of a run: `Checks` or `NoChecks`."""

    def __call__(self, program: Program, target: Target, operands: Sequence[Operands]) -> Watch: ...


class NoChecks:
    """Watches nothing; ranges are still checked by the machine itself."""

    def __init__(self, program: Program, target: Target, operands: Sequence[Operands]) -> None:
        pass

    def started(self, index: int) -> None:
        pass

    def finished(self, index: int) -> None:
        pass

    def ended(self) -> None:
        pass


class Checks:
    """Uninitialised reads, races, reused buffers, constants, alignment, overlapping buffers.

    A buffer's bytes become uninitialised when it is first touched, so that what an earlier buffer
    left there is never read by mistake; touching a buffer whose bytes another one has taken over is
    a race.  Only buffers that hold inputs or constants begin with contents.
    """

    def __init__(self, program: Program, target: Target, operands: Sequence[Operands]) -> None:
        self._program = program
        self._operands = operands
        self._running: set[int] = set()
        check_buffers(program, target)
        for index in range(len(program.commands)):
            self._check_static(index)
        self._written = {g: np.zeros(program.sram_bytes, np.bool_) for g in range(program.groups)}
        self._written[DDR] = np.zeros(program.ddr_bytes, np.bool_)
        self._written[DDR][: program.constants_bytes] = True
        for port in program.inputs:
            self._written[DDR][port.address : port.address + port.bytes] = True
        self._tenants = {s: _Tenants(program, s) for s in (DDR, *range(program.groups))}

    def started(self, index: int) -> None:
        command, boxes = self._program.commands[index], self._operands[index]
        for box in (*boxes.reads.values(), *boxes.writes.values()):
            space = _space(command, box)
            for opened in self._tenants[space].touch(index, box):
                self._written[space][opened.address : opened.address + opened.bytes] = False
        for box in boxes.reads.values():
            self._check_written(index, box)
        for other in sorted(self._running):
            self._check_race(index, other)
        self._running.add(index)

    def finished(self, index: int) -> None:
        self._running.remove(index)
        command = self._program.commands[index]
        for box in self._operands[index].writes.values():
            box.bytes_of(self._written[_space(command, box)])[...] = True

    def ended(self) -> None:
        for port in self._program.outputs:
            written = self._written[DDR][port.address : port.address + port.bytes]
            if not written.all():
                at = port.address + int(written.argmin())
                raise MachineFault(
                    f"output {port.name!r} was never written at address {at:#x}",
                    code=UNINITIALISED,
                )

    def _check_static(self, index: int) -> None:
        boxes = self._operands[index]
        for box in (*boxes.reads.values(), *boxes.writes.values()):
            odd = box.address % box.alignment or any(
                s % box.alignment for n, s in zip(box.shape, box.strides, strict=True) if n > 1
            )
            if odd:
                what = f"needs {box.field} aligned to {box.alignment} bytes"
                raise fault(self._program, index, what, MISALIGNED, box.address)
        for written in boxes.writes.values():
            if written.in_ddr and written.address < self._program.constants_bytes:
                raise fault(
                    self._program, index, "writes to the constants", CONSTANTS, written.address
                )
            for box in boxes.reads.values():
                if _same_elements(box, written) or box.in_ddr != written.in_ddr:
                    continue
                at = box.overlap(written)
                if at is not None:
                    what = f"writes {written.field} over its own {box.field}"
                    raise fault(self._program, index, what, RACE, at)

    def _check_written(self, index: int, box: Box) -> None:
        command = self._program.commands[index]
        written = box.bytes_of(self._written[_space(command, box)])
        if not written.all():
            at = box.address_of(int(written.argmin()))
            where = "DDR" if box.in_ddr else "SRAM"
            what = f"reads uninitialised {where} as {box.field}"
            raise fault(self._program, index, what, UNINITIALISED, at)

    def _check_race(self, index: int, other: int) -> None:
        mine, theirs = self._operands[index], self._operands[other]
        commands = self._program.commands
        conflicts = (
            ("writes what is being written by", mine.writes, theirs.writes),
            ("writes what is being read by", mine.writes, theirs.reads),
            ("reads what is being written by", mine.reads, theirs.writes),
        )
        for what, own, foreign in conflicts:
            for a in own.values():
                for b in foreign.values():
                    if _space(commands[index], a) != _space(commands[other], b):
                        continue
                    at = a.overlap(b)
                    if at is not None:
                        text = f"{what} {command_name(self._program, other)},"
                        raise fault(self._program, index, text, RACE, at)


def check_buffers(program: Program, target: Target) -> None:
    """Buffers are in range and aligned, and those that live together share no bytes.

    Raises:
        MachineFault: naming the buffers.
    """
    spaces: dict[int, list[Buffer]] = defaultdict(list)
    for buffer in program.buffers:
        limit = program.sram_bytes if buffer.group >= 0 else program.ddr_bytes
        if buffer.address + buffer.bytes > limit:
            raise _buffer_fault(buffer, f"ends beyond {limit} bytes")
        if buffer.group >= 0 and buffer.address % target.alignment:
            text = f"is not aligned to {target.alignment} bytes"
            raise _buffer_fault(buffer, text, MISALIGNED)
        spaces[buffer.group].append(buffer)
    for buffers in spaces.values():
        buffers.sort(key=lambda b: (b.first, b.address))
        live: list[Buffer] = []
        for buffer in buffers:
            live = [b for b in live if b.last >= buffer.first]
            for other in live:
                if _share(other, buffer):
                    raise _buffer_fault(buffer, f"overlaps {other.name!r} while both live")
            live.append(buffer)


def _buffer_fault(buffer: Buffer, what: str, code: str = BUFFERS) -> MachineFault:
    where = "DDR" if buffer.group < 0 else f"SRAM of group {buffer.group}"
    return MachineFault(
        f"buffer {buffer.name!r} in {where} {what} at address {buffer.address:#x}", code=code
    )


class _Tenants:
    """Which buffer holds which bytes of one space now."""

    def __init__(self, program: Program, space: int) -> None:
        self._program = program
        self._buffers = sorted(
            (b for b in program.buffers if b.group == space and b.bytes),
            key=lambda b: (b.address, b.first),
        )
        self._starts = [b.address for b in self._buffers]
        self._longest = max((b.bytes for b in self._buffers), default=0)
        self._open: dict[int, Buffer] = {}
        self._evicted: dict[int, Buffer] = {}
        self._given = [
            (0, program.constants_bytes),
            *((p.address, p.address + p.bytes) for p in program.inputs),
        ] if space == DDR else []  # fmt: skip

    def touch(self, index: int, box: Box) -> list[Buffer]:
        """Buffers that an access of command `index` opens, but for those with contents.

        Raises:
            MachineFault: the access comes after another buffer took over the bytes.
        """
        opened = []
        low = bisect.bisect_left(self._starts, box.address - self._longest)
        high = bisect.bisect_left(self._starts, box.end)
        for number in range(low, high):
            buffer = self._buffers[number]
            if not buffer.first <= index <= buffer.last:
                continue
            if number in self._open or buffer.address + buffer.bytes <= box.address:
                continue
            if number in self._evicted:
                taker = self._evicted[number]
                what = f"uses buffer {buffer.name!r} after {taker.name!r} took over its bytes"
                raise fault(self._program, index, what, RACE, box.address)
            self._take_over(number)
            if not any(start <= buffer.address < stop for start, stop in self._given):
                opened.append(buffer)
        return opened

    def _take_over(self, number: int) -> None:
        buffer = self._buffers[number]
        for other in [n for n, b in self._open.items() if _share(b, buffer)]:
            self._evicted[other] = buffer
            del self._open[other]
        self._open[number] = buffer


def _share(a: Buffer, b: Buffer) -> bool:
    return a.address < b.address + b.bytes and b.address < a.address + a.bytes


def _same_elements(a: Box, b: Box) -> bool:
    """Whether an instruction that writes `b` may read `a` in place: the same element each time."""
    return (a.in_ddr, a.address, a.shape, a.itemsize) == (
        b.in_ddr,
        b.address,
        b.shape,
        b.itemsize,
    ) and all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))


def _space(command: Command, box: Box) -> int:
    return DDR if box.in_ddr else command.group
