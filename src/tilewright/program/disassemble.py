"""The complete text of a Program; `assemble` gives the same program back.

One line for each statement.  Names are JSON strings, addresses hexadecimal, several values of a
field are joined by commas.  `;` begins a comment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tilewright.program.isa import Engine, Instruction, Wait
from tilewright.program.program import Command, Port, Program
from tilewright.records import Wire

HEADER_NUMBERS = ("groups", "sram_bytes", "constants_bytes", "ddr_bytes")
HEADER_STRINGS = ("target", "target_digest", "mode")


def disassemble(program: Program) -> str:
    """The text of `program`, one command a line in the program's order."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    for key in HEADER_STRINGS:
        yield f"{key} {json.dumps(getattr(program, key))}"
    for key in HEADER_NUMBERS:
        yield f"{key} {getattr(program, key)}"
    for kind, ports in (("input", program.inputs), ("output", program.outputs)):
        yield from (_port(kind, p) for p in ports)
    for i, name in enumerate(program.nodes):
        yield f"node {_name(name)} ; {i}"
    for b in program.buffers:
        where = "ddr" if b.group < 0 else f"g{b.group}"
        yield (
            f"buffer {_name(b.name)} {where} address={b.address:#x} bytes={b.bytes} "
            f"first={b.first} last={b.last}"
        )
    for i, command in enumerate(program.commands):
        yield f"{command_text(command)} ; {i}"


def _port(kind: str, port: Port) -> str:
    return f"{kind} {_name(port.name)} address={port.address:#x} bytes={port.bytes}"


def command_text(command: Command) -> str:
    """One command, for instance `g0 Load node=3 signal wait=g0.mtx:2 ddr=0x40 ...`."""
    words = [f"g{command.group}", type(command.instruction).__name__, f"node={command.node}"]
    words += ["first"] * command.first + ["signal"] * command.signals
    if command.waits:
        words.append("wait=" + ",".join(wait_text(w) for w in command.waits))
    return " ".join(words + _fields(command.instruction))


def wait_text(wait: Wait) -> str:
    """For instance `g0.mtx:2`: queue MTX of group 0 has sent two signals."""
    group, engine = divmod(wait.semaphore, len(Engine))
    return f"g{group}.{Engine(engine).name.lower()}:{wait.value}"


def _fields(instruction: Instruction) -> list[str]:
    return [
        f"{name}={_value(getattr(instruction, name), wire)}"
        for name, wire in instruction.wires().items()
    ]


def _value(value: int | tuple[int, ...], wire: Wire) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:#x}" if "address" in wire.doc else str(value)


def _name(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
