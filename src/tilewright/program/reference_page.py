"""`docs/isa.md`, made from the instruction table."""

from __future__ import annotations

import inspect

from tilewright.program import isa
from tilewright.program.layout import FORMAT_RECORDS
from tilewright.records import Record

CONSTANT_RECORDS: tuple[type[Record], ...] = (
    isa.ChannelRecord,
    isa.CountRecord,
    isa.TapRecord,
    isa.AffineRecord,
)
"""Records that instructions read from SRAM."""


def reference_page() -> str:
    """The page in Markdown: the machine's rules, every instruction, constants, the file format."""
    parts = [
        "# Instruction set\n\nGenerated from `program/isa.py` and `program/layout.py`.",
        _prose(inspect.getdoc(isa) or "", skip_first=True),
        "## Instructions",
        _summary(),
    ]
    for cls in isa.INSTRUCTIONS:
        head = f"### {cls.__name__}\n\n`{cls.OPCODE:#04x}`, engine {cls.ENGINE.name}."
        parts += [head, _described(cls), _fields(cls)]
    parts.append("## Records in SRAM")
    for record in CONSTANT_RECORDS:
        parts += [f"### {record.__name__}", _described(record), _fields(record)]
    parts += ["## Program file", _prose(_layout_doc(), skip_first=False)]
    for record in FORMAT_RECORDS:
        parts += [f"### {record.__name__}", _described(record), _fields(record)]
    return "\n\n".join(parts) + "\n"


def _layout_doc() -> str:
    from tilewright.program import layout

    return inspect.getdoc(layout) or ""


def _prose(doc: str, *, skip_first: bool) -> str:
    paragraphs = [" ".join(p.split("\n")) for p in doc.split("\n\n")]
    return "\n\n".join(paragraphs[skip_first:])


def _described(cls: type[Record]) -> str:
    """The class's own words after those of the record that it extends."""
    inherited = [
        base
        for base in cls.__mro__[1:]
        if issubclass(base, isa.Instruction) and base is not isa.Instruction
    ]
    docs = [inspect.cleandoc(c.__doc__ or "") for c in (cls, *inherited)]
    return "\n\n".join(_prose(doc, skip_first=False) for doc in docs)


def _summary() -> str:
    rows = [
        f"| `{c.OPCODE:#04x}` | [{c.__name__}](#{c.__name__.lower()}) | {c.ENGINE.name} "
        f"| {c.packed_size()} |"
        for c in isa.INSTRUCTIONS
    ]
    return "\n".join(["| opcode | name | engine | bytes |", "| --- | --- | --- | --- |", *rows])


def _fields(cls: type[Record]) -> str:
    rows, offset = [], 0
    for name, wire in cls.wires().items():
        kind = wire.type if wire.count is None else f"{wire.type} x {wire.count}"
        rows.append(f"| {offset} | `{name}` | {kind} | {wire.doc.replace('|', chr(92) + '|')} |")
        offset += wire.size
    return "\n".join(["| offset | field | type | meaning |", "| --- | --- | --- | --- |", *rows])
