"""From the bytes of a graph file to the graph; nothing in the file is trusted."""

from __future__ import annotations

import zlib
from typing import Any, NoReturn, TypeVar

import numpy as np

from tilewright.errors import ArtifactError, TilewrightError
from tilewright.graph import Array, Border, DType, Graph, Node, TensorType, verify
from tilewright.graphfile import attributes
from tilewright.graphfile.format import (
    ALIGNMENT,
    MAGIC,
    MAX_RANK,
    NOWHERE,
    VERSION,
    BorderRecord,
    ConstantKind,
    ConstantRecord,
    Direction,
    FileHeader,
    GraphRecord,
    NodeRecord,
    Section,
    SectionRecord,
    TensorRecord,
    numpy_dtype_of,
)
from tilewright.graphfile.schema import schema
from tilewright.ops.catalog import OPERATORS
from tilewright.records import Record

R = TypeVar("R", bound=Record)
_KINDS = frozenset(int(kind) for kind in ConstantKind)


def read(data: bytes | memoryview) -> Graph:
    """The graph that `write` was given; its constants are views of `data`.

    Raises:
        ArtifactError: the file is cut short, damaged, of another version, or inconsistent.
    """
    graph = _Reader(sections_of(memoryview(data).toreadonly())).graph()
    try:
        verify(graph)
    except ArtifactError:
        raise
    except (TilewrightError, ValueError, IndexError, KeyError, TypeError, AssertionError) as error:
        _fail(f"an operator is inconsistent ({error})")
    except (ZeroDivisionError, OverflowError) as error:
        _fail(f"an operator has an impossible attribute ({error})")
    return graph


def sections_of(data: memoryview) -> dict[Section, memoryview]:
    """Check header, sizes and checksum, and cut the file into its sections."""
    size = FileHeader.packed_size()
    if len(data) < size or bytes(data[: len(MAGIC)]) != MAGIC:
        _fail("it does not begin as a graph file does")
    header = FileHeader.unpack(data[:size])
    if header.version != VERSION:
        raise ArtifactError(
            f"the graph file has version {header.version}, this is version {VERSION}",
            fix="export it again",
            code="TW-1302",
        )
    if header.schema != schema():
        raise ArtifactError(
            "the graph file was written by a version whose operators differ from this one's",
            fix="export it again",
            code="TW-1302",
        )
    if header.bytes != len(data):
        _fail(f"it has {len(data)} bytes, its header says {header.bytes}")
    if zlib.crc32(data[size:]) != header.checksum:
        _fail("its checksum does not match")
    if header.sections != len(Section):
        _fail(f"it has {header.sections} sections")
    return dict(_section(data, size, section) for section in Section)


def _section(data: memoryview, table: int, section: Section) -> tuple[Section, memoryview]:
    size = SectionRecord.packed_size()
    at = table + section * size
    if at + size > len(data):
        _fail("its section table is cut short")
    record = SectionRecord.unpack(data[at : at + size])
    if record.section != section or record.reserved or record.offset % ALIGNMENT:
        _fail(f"section {section.name} is described wrongly")
    if record.offset > len(data) or record.bytes > len(data) - record.offset:
        _fail(f"section {section.name} leaves the file")
    return section, data[record.offset : record.offset + record.bytes]


class _Reader:
    """Sections of one file, with checked access to the pools."""

    def __init__(self, sections: dict[Section, memoryview]) -> None:
        if len(sections[Section.INTEGERS]) % 8:
            _fail("section INTEGERS is cut short")
        self.strings = sections[Section.STRINGS]
        self.integers = np.frombuffer(sections[Section.INTEGERS], "<i8")
        self.image = sections[Section.IMAGE]
        (self.graph_record,) = self._records(sections[Section.GRAPH], GraphRecord, 1)
        self.tensor_records = self._records(sections[Section.TENSORS], TensorRecord)
        self.node_records = self._records(sections[Section.NODES], NodeRecord)
        self.constant_records = self._records(sections[Section.CONSTANTS], ConstantRecord)
        self.border_records = self._records(sections[Section.BORDERS], BorderRecord)
        self.names: list[str] = []

    def graph(self) -> Graph:
        tensors: dict[str, TensorType] = {}
        for record in self.tensor_records:
            name, tensor = self._tensor(record)
            if name in tensors:
                _fail(f"tensor {name} appears twice")
            tensors[name] = tensor
        self.names = list(tensors)
        nodes = tuple(self._node(r) for r in self.node_records)
        inputs, outputs = self.graph_record.inputs, self.graph_record.outputs
        if inputs + outputs != len(self.border_records):
            _fail("the number of borders is wrong")
        borders = [
            self._border(r, Direction.INPUT if i < inputs else Direction.OUTPUT, tensors)
            for i, r in enumerate(self.border_records)
        ]
        name = self._text(self.graph_record.name_at, self.graph_record.name_bytes)
        return Graph(name, tensors, nodes, tuple(borders[:inputs]), tuple(borders[inputs:]))

    def _records(self, data: memoryview, record: type[R], count: int | None = None) -> list[R]:
        size = record.packed_size()
        if len(data) % size or (count is not None and len(data) != count * size):
            _fail(f"its {record.__name__}s are cut short")
        return [record.unpack(data[i : i + size]) for i in range(0, len(data), size)]

    def _text(self, at: int, length: int) -> str:
        if at + length > len(self.strings):
            _fail("a name leaves section STRINGS")
        try:
            return bytes(self.strings[at : at + length]).decode()
        except UnicodeDecodeError:
            _fail("a name is not UTF-8")

    def _numbers(self, at: int, count: int) -> tuple[int, ...]:
        if at + count > len(self.integers):
            _fail("a list leaves section INTEGERS")
        return tuple(int(v) for v in self.integers[at : at + count])

    def _shape(self, at: int, rank: int) -> tuple[int, ...]:
        if rank > MAX_RANK:
            _fail(f"a shape has {rank} axes")
        shape = self._numbers(at, rank)
        if any(not 0 < n < 2**31 for n in shape):
            _fail(f"{shape} is not a shape")
        return shape

    def _tensor_names(self, at: int, count: int) -> tuple[str, ...]:
        indices = self._numbers(at, count)
        if any(not 0 <= i < len(self.names) for i in indices):
            _fail("a node names a tensor that does not exist")
        return tuple(self.names[i] for i in indices)

    def _tensor(self, record: TensorRecord) -> tuple[str, TensorType]:
        name = self._text(record.name_at, record.name_bytes)
        if record.dtype >= len(DType) or record.reserved:
            _fail(f"tensor {name} has type {record.dtype}")
        dtype = DType(record.dtype)
        lo, hi = dtype.range
        if not lo <= record.zero_point <= hi:
            _fail(f"tensor {name} has the zero point {record.zero_point}")
        if record.zero_point and dtype not in (DType.U8, DType.S8):
            _fail(f"tensor {name} has a zero point, its type {dtype.text} has none")
        if not 0 < record.scale < float("inf"):
            _fail(f"tensor {name} has the scale {record.scale}")
        shape = self._shape(record.shape_at, record.rank)
        tensor = TensorType(dtype, shape, record.scale, record.zero_point)
        aligned = -(-tensor.bytes // ALIGNMENT) * ALIGNMENT
        if record.offset % ALIGNMENT or record.offset + aligned > self.graph_record.arena_bytes:
            _fail(f"tensor {name} leaves the arena")
        return name, tensor

    def _node(self, record: NodeRecord) -> Node:
        name = self._text(record.name_at, record.name_bytes)
        cls = OPERATORS.get(record.code)
        if cls is None:
            _fail(f"{name} is operator {record.code}, which does not exist")
        words = self._numbers(record.attributes_at, record.attributes)
        fields: dict[str, Any] = dict(attributes.from_words(cls.attributes(), words, name))
        fields |= self._constants(record, list(cls.constants().items()), name)
        pairs = self._numbers(record.sources_at, 2 * record.sources)
        if any(v < 0 for v in pairs):
            _fail(f"{name} names sources at negative positions")
        return Node(
            name,
            cls(**fields),
            self._tensor_names(record.inputs_at, record.inputs),
            self._tensor_names(record.outputs_at, record.outputs),
            tuple(self._text(a, n) for a, n in zip(pairs[::2], pairs[1::2], strict=True)),
        )

    def _constants(
        self, node: NodeRecord, declared: list[tuple[str, Any]], where: str
    ) -> dict[str, Array | None]:
        end = node.constants_at + node.constants
        if end > len(self.constant_records):
            _fail(f"the constants of {where} leave their section")
        values: dict[str, Array | None] = {name: None for name, c in declared if c.optional}
        previous = -1
        for record in self.constant_records[node.constants_at : end]:
            if not previous < record.field < len(declared):
                _fail(f"{where} has constants out of order")
            previous = record.field
            values[declared[record.field][0]] = self._constant(record, where)
        missing = [name for name, _ in declared if name not in values]
        if missing:
            _fail(f"{where} has no constant {missing[0]}")
        return values

    def _constant(self, record: ConstantRecord, where: str) -> Array:
        if record.kind not in _KINDS or record.reserved:
            _fail(f"a constant of {where} has kind {record.kind}")
        dtype = numpy_dtype_of(ConstantKind(record.kind))
        shape = self._shape(record.shape_at, record.rank)
        return self._array(dtype, shape, record.offset, record.bytes, where)

    def _array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, size: int, where: str
    ) -> Array:
        count = 1
        for n in shape:
            count *= n
        if size != count * dtype.itemsize:
            _fail(f"a constant of {where} has {size} bytes, its shape is {shape}")
        if offset % ALIGNMENT or offset + size > len(self.image):
            _fail(f"a constant of {where} leaves section IMAGE")
        return np.frombuffer(self.image, dtype, count, offset).reshape(shape)

    def _border(
        self, record: BorderRecord, direction: Direction, tensors: dict[str, TensorType]
    ) -> Border:
        name = self._text(record.name_at, record.name_bytes)
        if record.direction != direction or record.reserved or record.padding:
            _fail(f"border {name} is described wrongly")
        if record.tensor >= len(self.names):
            _fail(f"border {name} names a tensor that does not exist")
        tensor = self.names[record.tensor]
        stored = tensors[tensor]
        shape = self._shape(record.shape_at, record.rank)
        permutation = self._numbers(record.shape_at + record.rank, record.rank)
        if sorted(permutation) != list(range(record.rank)):
            _fail(f"border {name} has the permutation {permutation}")
        if tuple(shape[p] for p in permutation) != stored.shape:
            _fail(f"border {name} and its tensor {tensor} differ in shape")
        if not record.pixel_channels:
            if record.pixel_table != NOWHERE:
                _fail(f"border {name} has a pixel table without channels")
            return Border(name, tensor, shape, permutation)
        channels = stored.shape[-1] if stored.shape else 0
        sources = self._numbers(record.pixel_channels_at, channels)
        if direction is not Direction.INPUT or len(shape) != 4 or permutation != (0, 2, 3, 1):
            _fail(f"border {name} has a pixel table but is no picture")
        if min(sources) < 0 or max(sources) + 1 != record.pixel_channels:
            _fail(f"border {name} has the source channels {sources}")
        dtype = stored.dtype.numpy
        size = 256 * channels * dtype.itemsize
        table = self._array(dtype, (256, channels), record.pixel_table, size, name)
        return Border(name, tensor, shape, permutation, table, sources)


def _fail(reason: str) -> NoReturn:
    raise ArtifactError(
        f"the graph file cannot be used: {reason}", fix="export it again", code="TW-1301"
    )
