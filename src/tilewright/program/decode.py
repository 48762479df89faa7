"""Reads the binary form of a Program, trusting nothing.

Every length is checked before it is used, every index before it is followed; whatever is wrong is
an ArtifactError.  What a well-formed program does is for the machine to judge.
"""

from __future__ import annotations

import zlib
from typing import NoReturn, TypeVar

from tilewright.errors import ArtifactError
from tilewright.program.isa import Instruction, Wait
from tilewright.program.layout import (
    FIRST,
    INSTRUCTION_OF,
    MAGIC,
    SIGNALS,
    VERSION,
    BufferRecord,
    CommandHeader,
    FileHeader,
    PortRecord,
    ProgramHeader,
    WaitRecord,
)
from tilewright.program.program import Buffer, Command, Port, Program
from tilewright.records import Record

R = TypeVar("R", bound=Record)

_DDR = -1


def decode(data: bytes) -> Program:
    """The program of a file.

    Raises:
        ArtifactError: the bytes are not a program of this version, are cut or damaged.
    """
    reader = _Reader(memoryview(data))
    _check_file(reader, len(data))
    header = reader.record(ProgramHeader)
    strings = reader.strings(header.strings)
    program = Program(
        target=strings[header.target],
        target_digest=strings[header.target_digest],
        mode=strings[header.mode],
        groups=header.groups,
        sram_bytes=header.sram_bytes,
        constants_bytes=header.constants_bytes,
        ddr_bytes=header.ddr_bytes,
        inputs=_ports(reader, header.inputs, strings),
        outputs=_ports(reader, header.outputs, strings),
        nodes=_nodes(reader, header.nodes, strings),
        buffers=_buffers(reader, header, strings),
        commands=_commands(reader, header),
    )
    reader.expect_end()
    return program


def _check_file(reader: _Reader, size: int) -> None:
    header = reader.record(FileHeader)
    if header.magic != MAGIC:
        _refuse("it does not begin with TWPG")
    if header.version != VERSION:
        _refuse(f"it has version {header.version}, this tool reads {VERSION}")
    if header.size != size:
        _refuse(f"it has {size} bytes instead of {header.size}")
    if header.reserved != 0:
        _refuse("its reserved field is not zero")
    if header.checksum != zlib.crc32(reader.rest()):
        _refuse("its checksum is wrong")


def _ports(reader: _Reader, count: int, strings: _Strings) -> tuple[Port, ...]:
    return tuple(
        Port(strings[r.name], r.address, r.bytes) for r in reader.records(PortRecord, count)
    )


def _nodes(reader: _Reader, count: int, strings: _Strings) -> tuple[str, ...]:
    reader.require(4 * count)
    return tuple(strings[reader.u32()] for _ in range(count))


def _buffers(reader: _Reader, header: ProgramHeader, strings: _Strings) -> tuple[Buffer, ...]:
    buffers = []
    for r in reader.records(BufferRecord, header.buffers):
        if not (_DDR <= r.group < header.groups and r.first <= r.last < header.commands):
            _refuse(f"buffer {strings[r.name]!r} is out of range")
        buffers.append(Buffer(strings[r.name], r.group, r.address, r.bytes, r.first, r.last))
    return tuple(buffers)


def _commands(reader: _Reader, header: ProgramHeader) -> tuple[Command, ...]:
    reader.require(CommandHeader.packed_size() * header.commands)
    return tuple(_command(reader, header, index) for index in range(header.commands))


def _command(reader: _Reader, program: ProgramHeader, index: int) -> Command:
    header = reader.record(CommandHeader)
    cls = INSTRUCTION_OF.get(header.opcode)
    if cls is None:
        _refuse(f"command {index} has the unknown opcode {header.opcode:#04x}")
    if header.flags & ~(SIGNALS | FIRST):
        _refuse(f"command {index} has unknown flags")
    if header.group >= program.groups or header.node >= program.nodes:
        _refuse(f"command {index} is of a group or node that does not exist")
    waits = tuple(Wait(w.semaphore, w.value) for w in reader.records(WaitRecord, header.waits))
    instruction: Instruction = reader.record(cls)
    return Command(
        group=header.group,
        instruction=instruction,
        waits=waits,
        signals=bool(header.flags & SIGNALS),
        node=header.node,
        first=bool(header.flags & FIRST),
    )


class _Strings:
    """The string table; a number beyond it is refused."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def __getitem__(self, number: int) -> str:
        if number >= len(self._texts):
            _refuse(f"it names string {number} of {len(self._texts)}")
        return self._texts[number]


class _Reader:
    """A cursor that never reads beyond the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def require(self, size: int) -> None:
        if size > len(self._data) - self._at:
            _refuse("it ends too early")

    def take(self, size: int) -> memoryview:
        self.require(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> memoryview:
        return self._data[self._at :]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def record(self, cls: type[R]) -> R:
        return cls.unpack(self.take(cls.packed_size()))

    def records(self, cls: type[R], count: int) -> list[R]:
        self.require(cls.packed_size() * count)
        return [self.record(cls) for _ in range(count)]

    def strings(self, count: int) -> _Strings:
        self.require(4 * count)
        try:
            return _Strings([str(self.take(self.u32()), "utf-8") for _ in range(count)])
        except UnicodeDecodeError:
            _refuse("its string table is not UTF-8")

    def expect_end(self) -> None:
        if self._at != len(self._data):
            _refuse(f"{len(self._data) - self._at} bytes follow its end")


def _refuse(reason: str) -> NoReturn:
    raise ArtifactError(
        f"this is not a usable program: {reason}", fix="build it again", code="TW-1310"
    )
