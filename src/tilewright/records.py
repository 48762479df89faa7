"""Fixed little-endian records declared once, as dataclasses.

Instructions, graph-file headers and operator attributes are dataclasses whose fields carry a wire
type and a sentence of documentation.  Packing, unpacking, text, C structs and reference pages are
all derived from that declaration, so none of them can disagree.

    @dataclass(frozen=True)
    class Example(Record):
        rows: int = u16("rows of the tile")
        strides: tuple[int, ...] = s32("byte strides, outermost first", count=4)
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

WIRE_FORMATS = {
    "u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i",
    "u64": "Q", "s64": "q", "f32": "f",
}  # fmt: skip
C_TYPES = {
    "u8": "uint8_t", "s8": "int8_t", "u16": "uint16_t", "s16": "int16_t", "u32": "uint32_t",
    "s32": "int32_t", "u64": "uint64_t", "s64": "int64_t", "f32": "float",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Wire:
    """How one field is stored: `count` is None for a scalar."""

    type: str
    doc: str
    count: int | None = None

    @property
    def format(self) -> str:
        return f"{self.count or ''}{WIRE_FORMATS[self.type]}"

    @property
    def size(self) -> int:
        return struct.calcsize("<" + self.format)


def _wire_field(wire_type: str) -> Callable[..., Any]:
    def declare(doc: str, *, count: int | None = None, default: Any = dataclasses.MISSING) -> Any:
        wire = Wire(wire_type, doc, count)
        return dataclasses.field(default=default, metadata={"wire": wire})

    return declare


u8, s8 = _wire_field("u8"), _wire_field("s8")
u16, s16 = _wire_field("u16"), _wire_field("s16")
u32, s32 = _wire_field("u32"), _wire_field("s32")
u64, s64 = _wire_field("u64"), _wire_field("s64")
f32 = _wire_field("f32")


@dataclasses.dataclass(frozen=True)
class Record:
    """Base of all records; every dataclass field must be declared with a wire type."""

    _wires: ClassVar[dict[type, dict[str, Wire]]] = {}
    _layouts: ClassVar[dict[type, struct.Struct]] = {}

    @classmethod
    def wires(cls) -> dict[str, Wire]:
        """Field name -> wire, in storage order."""
        if cls not in Record._wires:
            fields = dataclasses.fields(cls)
            Record._wires[cls] = {f.name: f.metadata["wire"] for f in fields}
        return Record._wires[cls]

    @classmethod
    def layout(cls) -> struct.Struct:
        if cls not in Record._layouts:
            formats = "".join(w.format for w in cls.wires().values())
            Record._layouts[cls] = struct.Struct("<" + formats)
        return Record._layouts[cls]

    @classmethod
    def packed_size(cls) -> int:
        return cls.layout().size

    @classmethod
    def numpy_dtype(cls) -> np.dtype[Any]:
        """The packed structured dtype of an array of such records."""
        return np.dtype(
            [
                (name, "<" + WIRE_FORMATS[w.type], *([(w.count,)] if w.count else []))
                for name, w in cls.wires().items()
            ]
        )

    def pack(self) -> bytes:
        """The record's bytes; struct.error when a value does not fit its field."""
        flat: list[Any] = []
        for name, wire in self.wires().items():
            value = getattr(self, name)
            if wire.count is None:
                flat.append(value)
                continue
            if len(value) != wire.count:
                raise struct.error(f"{type(self).__name__}.{name} takes {wire.count} values")
            flat.extend(value)
        return self.layout().pack(*flat)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Self:
        """Read a record from exactly `packed_size()` bytes."""
        flat = cls.layout().unpack(data)
        values: dict[str, Any] = {}
        at = 0
        for name, wire in cls.wires().items():
            if wire.count is None:
                values[name] = flat[at]
                at += 1
            else:
                values[name] = tuple(flat[at : at + wire.count])
                at += wire.count
        return cls(**values)
