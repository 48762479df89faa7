"""How the machine stops: one sentence that names command, engine, node and address."""

from __future__ import annotations

from tilewright.errors import MachineFault
from tilewright.program.program import Program

ILLEGAL = "TW-4001"
OUT_OF_RANGE = "TW-4002"
UNINITIALISED = "TW-4003"
MISALIGNED = "TW-4004"
CONSTANTS = "TW-4005"
BUFFERS = "TW-4006"
RACE = "TW-4007"
DEADLOCK = "TW-4008"
SEMAPHORE = "TW-4009"
TARGET = "TW-4010"
PORTS = "TW-4011"


class Illegal(Exception):
    """An instruction that no hardware could execute; the machine adds where it stands."""


def fault(
    program: Program, index: int, what: str, code: str, address: int | None = None
) -> MachineFault:
    """The fault of command `index`."""
    at = "" if address is None else f" at address {address:#x}"
    return MachineFault(f"{command_name(program, index)} {what}{at}", code=code)


def command_name(program: Program, index: int) -> str:
    """For instance `command 12 (Convolve, MTX of group 0, node 'conv1')`."""
    command = program.commands[index]
    kind = type(command.instruction)
    node = repr(program.nodes[command.node]) if command.node < len(program.nodes) else command.node
    return (
        f"command {index} ({kind.__name__}, {kind.ENGINE.name} of group {command.group}, "
        f"node {node})"
    )
