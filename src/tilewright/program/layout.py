"""The program file: a header, a string table, and tables of fixed records.

Little-endian.  In order: FileHeader, ProgramHeader, the strings (u32 length, then UTF-8, each),
PortRecords of the inputs, of the outputs, u32 string numbers of the nodes, BufferRecords, and the
commands: CommandHeader, its WaitRecords, the instruction's own record.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.program.isa import INSTRUCTIONS, Instruction
from tilewright.records import Record, s32, u8, u16, u32, u64

MAGIC = int.from_bytes(b"TWPG", "little")
VERSION = 1

SIGNALS, FIRST = 1, 2
"""Bits of CommandHeader.flags."""

INSTRUCTION_OF: dict[int, type[Instruction]] = {cls.OPCODE: cls for cls in INSTRUCTIONS}
INSTRUCTION_NAMED: dict[str, type[Instruction]] = {cls.__name__: cls for cls in INSTRUCTIONS}


@dataclass(frozen=True)
class FileHeader(Record):
    """Identifies the file and protects it."""

    magic: int = u32('the bytes "TWPG"')
    version: int = u32("version of this layout")
    size: int = u64("bytes of the whole file")
    checksum: int = u32("CRC-32 of everything behind this header")
    reserved: int = u32("zero")


@dataclass(frozen=True)
class ProgramHeader(Record):
    """Sizes of the program and of the tables that follow."""

    target: int = u32("string: name of the target description")
    target_digest: int = u32("string: its hash")
    mode: int = u32("string: NPU mode")
    groups: int = u32("groups in use")
    sram_bytes: int = u64("SRAM of each group")
    constants_bytes: int = u64("constants at the start of DDR")
    ddr_bytes: int = u64("the whole DDR address space")
    strings: int = u32("number of strings")
    inputs: int = u32("number of inputs")
    outputs: int = u32("number of outputs")
    nodes: int = u32("number of nodes")
    buffers: int = u32("number of buffers")
    commands: int = u32("number of commands")


@dataclass(frozen=True)
class PortRecord(Record):
    """A graph input or output in DDR."""

    name: int = u32("string: the ONNX value")
    address: int = u64("ddr address")
    bytes: int = u64("size")


@dataclass(frozen=True)
class BufferRecord(Record):
    """What lies where and when."""

    name: int = u32("string: tensor or constant")
    group: int = s32("owner of the SRAM, -1 for DDR")
    address: int = u64("first byte")
    bytes: int = u64("size")
    first: int = u32("first command of its life")
    last: int = u32("last command of its life")


@dataclass(frozen=True)
class CommandHeader(Record):
    """What every instruction begins with."""

    opcode: int = u8("which record follows the waits")
    flags: int = u8("1 signals its queue's semaphore when done, 2 begins its operator")
    waits: int = u8("number of WaitRecords")
    group: int = u8("group of the queue")
    node: int = u32("index of the operator that it serves")


@dataclass(frozen=True)
class WaitRecord(Record):
    """Start only when the semaphore has counted to the value."""

    semaphore: int = u16("group * 4 + engine")
    value: int = u32("count to reach")


FORMAT_RECORDS: tuple[type[Record], ...] = (
    FileHeader, ProgramHeader, PortRecord, BufferRecord, CommandHeader, WaitRecord,
)  # fmt: skip
