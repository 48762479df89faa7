"""The instruction set and compiled programs: records, binary form, text form."""

from __future__ import annotations

from tilewright.program.assemble import assemble
from tilewright.program.decode import decode
from tilewright.program.disassemble import disassemble
from tilewright.program.encode import encode
from tilewright.program.program import Buffer, Command, Port, Program

__all__ = ["Buffer", "Command", "Port", "Program", "assemble", "decode", "disassemble", "encode"]
