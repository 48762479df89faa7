"""From a graph to the bytes of its graph file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from tilewright.errors import ArtifactError
from tilewright.graph import Array, Border, Graph, Node
from tilewright.graphfile import arena, attributes
from tilewright.graphfile.format import (
    ALIGNMENT,
    MAGIC,
    MAX_RANK,
    NOWHERE,
    VERSION,
    BorderRecord,
    ConstantRecord,
    Direction,
    FileHeader,
    GraphRecord,
    NodeRecord,
    Section,
    SectionRecord,
    TensorRecord,
    kind_of,
)
from tilewright.graphfile.schema import schema
from tilewright.program.constants import ConstantImage, lay_out


def write(graph: Graph) -> bytes:
    """The graph file of `graph`: the same graph gives the same bytes.

    Raises:
        ArtifactError: something does not fit the format (a rank above 8, a number above 64 bits).
    """
    try:
        return _Writer(graph).file()
    except (struct.error, OverflowError) as error:
        raise ArtifactError(f"graph {graph.name} does not fit a graph file: {error}") from error


class _Strings:
    """Text pool; equal strings are stored once."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self._known: dict[str, tuple[int, int]] = {}

    def add(self, text: str) -> tuple[int, int]:
        if text not in self._known:
            data = text.encode()
            self._known[text] = (len(self.bytes), len(data))
            self.bytes += data
        return self._known[text]


class _Integers:
    """Number pool; equal runs are stored once."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._known: dict[tuple[int, ...], int] = {}

    def add(self, values: Iterable[int]) -> int:
        run = tuple(int(v) for v in values)
        if run not in self._known:
            self._known[run] = len(self.values)
            self.values += run
        return self._known[run]


class _Writer:
    """Pools and records of one file under construction."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.strings = _Strings()
        self.integers = _Integers()
        self.index = {name: i for i, name in enumerate(graph.tensors)}
        self.constants: list[ConstantRecord] = []
        self.layout = lay_out(graph)
        self.tables: list[Array] = []

    def file(self) -> bytes:
        plan = arena.plan(self.graph)
        name = self.strings.add(self.graph.name)
        graph = GraphRecord(*name, plan.bytes, len(self.graph.inputs), len(self.graph.outputs))
        tensors = [self._tensor(n, plan.offsets[n]) for n in self.graph.tensors]
        nodes = [self._node(n) for n in self.graph.nodes]
        borders = [self._border(b, Direction.INPUT) for b in self.graph.inputs]
        borders += [self._border(b, Direction.OUTPUT) for b in self.graph.outputs]
        return assemble(
            {
                Section.GRAPH: graph.pack(),
                Section.STRINGS: bytes(self.strings.bytes),
                Section.INTEGERS: np.array(self.integers.values, "<i8").tobytes(),
                Section.TENSORS: b"".join(t.pack() for t in tensors),
                Section.NODES: b"".join(n.pack() for n in nodes),
                Section.CONSTANTS: b"".join(c.pack() for c in self.constants),
                Section.BORDERS: b"".join(b.pack() for b in borders),
                Section.IMAGE: image(self.layout, self.tables),
            }
        )

    def _tensor(self, name: str, offset: int) -> TensorRecord:
        t = self.graph.tensors[name]
        _check_rank(len(t.shape), f"tensor {name}")
        shape_at = self.integers.add(t.shape)
        text = self.strings.add(name)
        return TensorRecord(
            *text, offset, shape_at, len(t.shape), t.dtype, 0, t.scale, t.zero_point
        )

    def _node(self, node: Node) -> NodeRecord:
        words = attributes.to_words(node.op)
        constants_at = len(self.constants)
        declared = list(node.op.constants())
        for field, array in node.op.constant_arrays().items():
            self.constants.append(self._constant(node, declared.index(field), field, array))
        sources = [v for text in node.source for v in self.strings.add(text)]
        return NodeRecord(
            *self.strings.add(node.name),
            code=node.op.CODE,
            inputs_at=self.integers.add(self.index[n] for n in node.inputs),
            inputs=len(node.inputs),
            outputs_at=self.integers.add(self.index[n] for n in node.outputs),
            outputs=len(node.outputs),
            attributes_at=self.integers.add(words),
            attributes=len(words),
            constants_at=constants_at,
            constants=len(self.constants) - constants_at,
            sources_at=self.integers.add(sources),
            sources=len(node.source),
        )

    def _constant(self, node: Node, index: int, field: str, array: Array) -> ConstantRecord:
        where = f"{node.name}: constant {field}"
        _check_rank(array.ndim, where)
        try:
            kind = kind_of(array)
        except KeyError:
            raise ArtifactError(f"{where} has dtype {array.dtype}") from None
        offset = self.layout.offsets[node.name, field]
        shape_at = self.integers.add(array.shape)
        return ConstantRecord(index, kind, array.ndim, 0, shape_at, offset, array.nbytes)

    def _border(self, border: Border, direction: Direction) -> BorderRecord:
        _check_rank(len(border.shape), f"border {border.name}")
        channels, table_at = 0, NOWHERE
        stored = self.graph.tensors[border.tensor]
        sources = border.pixel_channels
        if border.pixel_table is not None:
            sources = sources or tuple(range(border.pixel_table.shape[1]))
            channels = max(sources) + 1
            table = border.pixel_table.astype(stored.dtype.numpy)
            table_at = self.layout.bytes + sum(_padded(len(t.tobytes())) for t in self.tables)
            self.tables.append(table)
        return BorderRecord(
            *self.strings.add(border.name),
            tensor=self.index[border.tensor],
            shape_at=self.integers.add((*border.shape, *border.permutation)),
            rank=len(border.shape),
            direction=direction,
            reserved=0,
            pixel_channels=channels,
            pixel_channels_at=self.integers.add(sources),
            padding=0,
            pixel_table=table_at,
        )


def image(layout: ConstantImage, tables: Sequence[Array]) -> bytes:
    """Constants of the nodes, then the pixel tables of the borders."""
    parts = [layout.tobytes()]
    parts += [t.tobytes().ljust(_padded(t.nbytes), b"\0") for t in tables]
    return b"".join(parts)


def assemble(sections: dict[Section, bytes]) -> bytes:
    """Header, section table and sections, with sizes and checksum filled in."""
    at = _padded(FileHeader.packed_size() + len(sections) * SectionRecord.packed_size())
    table, body = b"", b""
    for section, data in sections.items():
        table += SectionRecord(section, 0, at + len(body), len(data)).pack()
        body += data.ljust(_padded(len(data)), b"\0")
    head = table.ljust(at - FileHeader.packed_size(), b"\0")
    return seal(head + body, len(sections))


def seal(rest: bytes, sections: int) -> bytes:
    """Put the header in front of everything that follows it."""
    size = FileHeader.packed_size() + len(rest)
    header = FileHeader(tuple(MAGIC), VERSION, sections, size, zlib.crc32(rest), schema())
    return header.pack() + rest


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _check_rank(rank: int, where: str) -> None:
    if rank > MAX_RANK:
        raise ArtifactError(f"{where} has {rank} axes, the limit is {MAX_RANK}")
