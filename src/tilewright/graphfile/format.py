"""Layout of a graph file, declared once.

A file is a header, a section table and sections.  Variable-length data stands in two pools: UTF-8
text in STRINGS, s64 numbers in INTEGERS; records refer to them by position and count.  All is
little-endian; every section begins at a multiple of `ALIGNMENT`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.graph import Array, DType
from tilewright.program.constants import ALIGNMENT as ALIGNMENT
from tilewright.program.isa import AffineRecord, ChannelRecord, CountRecord, TapRecord
from tilewright.records import Record, f32, s32, u8, u16, u32, u64

MAGIC: Final = b"TWGRAPH\x1a"
VERSION: Final = 1
MAX_RANK: Final = 8
"""Largest rank of a tensor or constant."""
NOWHERE: Final = 2**64 - 1
"""Offset of something that is absent."""


class Section(enum.IntEnum):
    """The sections, in file order; each appears exactly once."""

    GRAPH = 0
    STRINGS = 1
    INTEGERS = 2
    TENSORS = 3
    NODES = 4
    CONSTANTS = 5
    BORDERS = 6
    IMAGE = 7

    @property
    def doc(self) -> str:
        return _SECTION_DOCS[self]


_SECTION_DOCS = {
    Section.GRAPH: "one GraphRecord",
    Section.STRINGS: "UTF-8 text that names refer to, without terminators",
    Section.INTEGERS: "s64 numbers: shapes, attributes, lists of tensors",
    Section.TENSORS: "one TensorRecord for each tensor",
    Section.NODES: "one NodeRecord for each operator, in execution order",
    Section.CONSTANTS: "ConstantRecords, referred to by nodes",
    Section.BORDERS: "one BorderRecord for each graph input, then for each output",
    Section.IMAGE: "the constants' bytes, each at a multiple of 64",
}


class Direction(enum.IntEnum):
    """What a border is."""

    INPUT = 0
    OUTPUT = 1


class ConstantKind(enum.IntEnum):
    """Element of a constant: a plain type (the numbers of `DType`) or a record."""

    U8 = 0
    S8 = 1
    S16 = 2
    S32 = 3
    S64 = 4
    CHANNEL = 16
    COUNT = 17
    TAP = 18
    AFFINE = 19


CONSTANT_RECORDS: Final[dict[ConstantKind, type[Record]]] = {
    ConstantKind.CHANNEL: ChannelRecord,
    ConstantKind.COUNT: CountRecord,
    ConstantKind.TAP: TapRecord,
    ConstantKind.AFFINE: AffineRecord,
}


def numpy_dtype_of(kind: ConstantKind) -> np.dtype[np.generic]:
    """The dtype of one element."""
    record = CONSTANT_RECORDS.get(kind)
    return DType(kind).numpy if record is None else record.numpy_dtype()


_KINDS = {numpy_dtype_of(kind): kind for kind in ConstantKind}


def kind_of(array: Array) -> ConstantKind:
    """The kind of a constant array.

    Raises:
        KeyError: the dtype is none of a graph file.
    """
    return _KINDS[array.dtype.newbyteorder("<")]


@dataclass(frozen=True)
class FileHeader(Record):
    """First bytes of the file; SectionRecords follow it."""

    magic: tuple[int, ...] = u8("the bytes of `TWGRAPH\\x1a`", count=8)
    version: int = u32("format version")
    sections: int = u32("number of SectionRecords")
    bytes: int = u64("size of the whole file")
    checksum: int = u32("CRC-32 (zlib) of everything after the header")
    schema: int = u32("number of the operators' declarations that the file was written from")


@dataclass(frozen=True)
class SectionRecord(Record):
    """Where one section lies."""

    section: int = u32("number of the section")
    reserved: int = u32("zero")
    offset: int = u64("file offset of the first byte, a multiple of 64")
    bytes: int = u64("size in bytes, without the gap that follows")


@dataclass(frozen=True)
class GraphRecord(Record):
    """The graph as a whole."""

    name_at: int = u32("name: position in STRINGS")
    name_bytes: int = u32("name: length")
    arena_bytes: int = u64("size of the arena that holds all tensors")
    inputs: int = u32("number of input borders")
    outputs: int = u32("number of output borders")


@dataclass(frozen=True)
class TensorRecord(Record):
    """A stored tensor; its elements are contiguous in the arena."""

    name_at: int = u32("name: position in STRINGS")
    name_bytes: int = u32("name: length")
    offset: int = u64("arena offset of the first byte, a multiple of 64")
    shape_at: int = u32("shape: position in INTEGERS, `rank` numbers")
    rank: int = u8("number of axes")
    dtype: int = u8("DType")
    reserved: int = u16("zero")
    scale: float = f32("real value of one step")
    zero_point: int = s32("code that stands for zero")


@dataclass(frozen=True)
class NodeRecord(Record):
    """An operator at its place."""

    name_at: int = u32("name: position in STRINGS")
    name_bytes: int = u32("name: length")
    code: int = u32("operator, see below")
    inputs_at: int = u32("input tensors: position in INTEGERS")
    inputs: int = u32("number of inputs")
    outputs_at: int = u32("output tensors: position in INTEGERS")
    outputs: int = u32("number of outputs")
    attributes_at: int = u32("attributes: position in INTEGERS")
    attributes: int = u32("number of attribute words")
    constants_at: int = u32("constants: position in CONSTANTS")
    constants: int = u32("number of constants")
    sources_at: int = u32("ONNX nodes: position in INTEGERS, pairs (position, length) in STRINGS")
    sources: int = u32("number of ONNX nodes")


@dataclass(frozen=True)
class ConstantRecord(Record):
    """One constant of a node."""

    field: int = u8("index among the operator's constants")
    kind: int = u8("ConstantKind of an element")
    rank: int = u8("number of axes")
    reserved: int = u8("zero")
    shape_at: int = u32("shape: position in INTEGERS")
    offset: int = u64("offset in IMAGE, a multiple of 64")
    bytes: int = u64("size: elements times the size of the kind")


@dataclass(frozen=True)
class BorderRecord(Record):
    """A graph input or output."""

    name_at: int = u32("ONNX name: position in STRINGS")
    name_bytes: int = u32("ONNX name: length")
    tensor: int = u32("index of the stored tensor")
    shape_at: int = u32("ONNX shape, then the permutation: position in INTEGERS, 2 * `rank`")
    rank: int = u8("number of axes")
    direction: int = u8("Direction")
    reserved: int = u16("zero")
    pixel_channels: int = u32("source channels of a u8 picture; 0 when there is no pixel table")
    pixel_channels_at: int = u32("source channel of each stored channel: position in INTEGERS")
    padding: int = u32("zero")
    pixel_table: int = u64("codes [256, channels]: offset in IMAGE; all ones when absent")


RECORDS: Final[tuple[type[Record], ...]] = (
    FileHeader, SectionRecord, GraphRecord, TensorRecord, NodeRecord, ConstantRecord, BorderRecord,
    ChannelRecord, CountRecord, TapRecord, AffineRecord,
)  # fmt: skip
