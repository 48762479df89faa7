"""Reads the text of `disassemble`."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tilewright.errors import ArtifactError, nearest
from tilewright.program.disassemble import HEADER_NUMBERS, HEADER_STRINGS
from tilewright.program.isa import Engine, Instruction, Wait, semaphore_of
from tilewright.program.layout import INSTRUCTION_NAMED
from tilewright.program.program import Buffer, Command, Port, Program

_ENGINES = {engine.name.lower(): engine for engine in Engine}


def assemble(text: str) -> Program:
    """The program of a text; `assemble(disassemble(p)) == p`.

    Raises:
        ArtifactError: naming the line and what is wrong with it.
    """
    parser = _Parser()
    for number, line in enumerate(text.split("\n"), 1):
        parser.line(line.strip(), number)
    return parser.program()


class _Parser:
    """Collects statements; every method raises _Mistake, which `line` gives its number."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.nodes: list[str] = []
        self.buffers: list[Buffer] = []
        self.commands: list[Command] = []

    def line(self, line: str, number: int) -> None:
        if not line or line.startswith(";"):
            return
        try:
            self.statement(*_split(line))
        except _Mistake as mistake:
            raise ArtifactError(f"line {number}: {mistake}", code="TW-1311") from None

    def statement(self, word: str, rest: str) -> None:
        match word:
            case _ if word in HEADER_STRINGS:
                self.header[word], _ = _string(rest)
            case _ if word in HEADER_NUMBERS:
                self.header[word] = _integer(rest.partition(";")[0].strip())
            case "input" | "output":
                ports = self.inputs if word == "input" else self.outputs
                ports.append(_port(rest))
            case "node":
                self.nodes.append(_string(rest)[0])
            case "buffer":
                self.buffers.append(_buffer(rest))
            case _ if _group(word) is not None:
                self.commands.append(_command(word, rest.partition(";")[0]))
            case _:
                statements = (*HEADER_STRINGS, *HEADER_NUMBERS, "input", "output", "node", "buffer")
                _fail(f"{word!r} begins no statement; {nearest(word, statements)}")

    def program(self) -> Program:
        for key in (*HEADER_STRINGS, *HEADER_NUMBERS):
            if key not in self.header:
                raise ArtifactError(f"the text has no line {key!r}", code="TW-1311")
        return Program(
            **self.header,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            nodes=tuple(self.nodes),
            buffers=tuple(self.buffers),
            commands=tuple(self.commands),
        )


class _Mistake(Exception):
    """What is wrong with the current line."""


def _fail(reason: str) -> NoReturn:
    raise _Mistake(reason)


def _split(line: str) -> tuple[str, str]:
    word, _, rest = line.partition(" ")
    return word, rest.strip()


def _string(text: str) -> tuple[str, str]:
    """A JSON string at the start of `text`, and what follows it."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        _fail(f"a quoted name is expected, not {text!r}")
    if not isinstance(value, str):
        _fail(f"a quoted name is expected, not {text!r}")
    return value, text[end:].strip()


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        _fail(f"{text!r} is not a number")


def _integers(text: str) -> tuple[int, ...]:
    return tuple(_integer(part) for part in text.split(","))


def _assignments(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            _fail(f"{word!r} is not of the form field=value")
        if key in found:
            _fail(f"{key} is given twice")
        found[key] = value
    return found


def _numbers(text: str, keys: tuple[str, ...]) -> list[int]:
    given = _assignments(text.partition(";")[0].split())
    if set(given) != set(keys):
        _fail(f"the fields must be {', '.join(keys)}")
    return [_integer(given[key]) for key in keys]


def _port(rest: str) -> Port:
    name, rest = _string(rest)
    return Port(name, *_numbers(rest, ("address", "bytes")))


def _buffer(rest: str) -> Buffer:
    name, rest = _string(rest)
    where, rest = _split(rest)
    group = -1 if where == "ddr" else _group(where)
    if group is None:
        _fail(f"{where!r} is neither ddr nor a group")
    return Buffer(name, group, *_numbers(rest, ("address", "bytes", "first", "last")))


def _group(word: str) -> int | None:
    return int(word[1:]) if word[:1] == "g" and word[1:].isascii() and word[1:].isdigit() else None


def _command(word: str, rest: str) -> Command:
    group = _group(word)
    assert group is not None
    name, *words = rest.split() or [""]
    cls = INSTRUCTION_NAMED.get(name)
    if cls is None:
        _fail(f"there is no instruction {name!r}; {nearest(name, INSTRUCTION_NAMED)}")
    flags = {flag: flag in words for flag in ("first", "signal")}
    given = _assignments([w for w in words if w not in flags])
    node = _integer(given.pop("node", ""))
    waits = tuple(_wait(w) for w in given.pop("wait", "").split(",") if w)
    instruction = _instruction(cls, given)
    return Command(group, instruction, waits, flags["signal"], node, flags["first"])


def _instruction(cls: type[Instruction], given: dict[str, str]) -> Instruction:
    wires = cls.wires()
    for key in given:
        if key not in wires:
            _fail(f"{cls.__name__} has no field {key!r}; {nearest(key, wires)}")
    values: dict[str, int | tuple[int, ...]] = {}
    for key, wire in wires.items():
        if key not in given:
            _fail(f"{cls.__name__} needs {key}")
        parts = _integers(given[key])
        if len(parts) != (wire.count or 1):
            _fail(f"{cls.__name__}.{key} takes {wire.count or 1} values")
        values[key] = parts[0] if wire.count is None else parts
    return cls(**values)


def _wait(text: str) -> Wait:
    queue, _, value = text.partition(":")
    where, _, engine = queue.partition(".")
    group = _group(where)
    if group is None or engine not in _ENGINES:
        _fail(f"{text!r} is not a wait; for instance g0.load:3")
    return Wait(semaphore_of(group, _ENGINES[engine]), _integer(value))
