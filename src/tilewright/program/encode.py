"""Writes a Program in the binary form of `layout.py`."""

from __future__ import annotations

import struct
import zlib

from tilewright.errors import CompileError
from tilewright.program.layout import (
    FIRST,
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
from tilewright.program.program import Command, Program
from tilewright.records import Record


def encode(program: Program) -> bytes:
    """The program's file; equal programs give equal bytes.

    Raises:
        CompileError: a value does not fit its field; command and field are named.
    """
    strings = _StringTable()
    header = ProgramHeader(
        target=strings.number(program.target),
        target_digest=strings.number(program.target_digest),
        mode=strings.number(program.mode),
        groups=program.groups,
        sram_bytes=program.sram_bytes,
        constants_bytes=program.constants_bytes,
        ddr_bytes=program.ddr_bytes,
        strings=0,
        inputs=len(program.inputs),
        outputs=len(program.outputs),
        nodes=len(program.nodes),
        buffers=len(program.buffers),
        commands=len(program.commands),
    )
    tables = [
        _pack(PortRecord(strings.number(p.name), p.address, p.bytes), f"port {p.name}")
        for p in (*program.inputs, *program.outputs)
    ]
    tables += [struct.pack("<I", strings.number(name)) for name in program.nodes]
    tables += [
        _pack(
            BufferRecord(strings.number(b.name), b.group, b.address, b.bytes, b.first, b.last),
            f"buffer {b.name}",
        )
        for b in program.buffers
    ]
    tables += [_command(c, i) for i, c in enumerate(program.commands)]
    counted = ProgramHeader(**{**vars(header), "strings": len(strings.numbers)})
    body = _pack(counted, "the header") + strings.tobytes() + b"".join(tables)
    size = FileHeader.packed_size() + len(body)
    return FileHeader(MAGIC, VERSION, size, zlib.crc32(body), 0).pack() + body


def _command(command: Command, index: int) -> bytes:
    instruction = command.instruction
    where = f"command {index} ({type(instruction).__name__})"
    flags = SIGNALS * command.signals + FIRST * command.first
    header = CommandHeader(
        instruction.OPCODE, flags, len(command.waits), command.group, command.node
    )
    records = [header, *(WaitRecord(*w) for w in command.waits), instruction]
    return b"".join(_pack(r, where) for r in records)


def _pack(record: Record, where: str) -> bytes:
    try:
        return record.pack()
    except struct.error:
        name = next(n for n in record.wires() if not _fits(record, n))
        raise CompileError(
            f"{where}: {name} = {getattr(record, name)} does not fit {record.wires()[name].type}",
            code="TW-3210",
        ) from None


def _fits(record: Record, name: str) -> bool:
    wire = record.wires()[name]
    value = getattr(record, name)
    values = (value,) if wire.count is None else value
    try:
        struct.pack("<" + wire.format, *values)
    except struct.error:
        return False
    return True


class _StringTable:
    """Each string once, numbered by first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def tobytes(self) -> bytes:
        encoded = [text.encode("utf-8") for text in self.numbers]
        return b"".join(struct.pack("<I", len(e)) + e for e in encoded)
