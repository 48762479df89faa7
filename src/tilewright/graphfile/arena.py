"""Places every tensor of a graph in one arena, so that tensors alive together never overlap.

A Reshape's output is its input under another name and shares its storage.  Graph inputs stay intact
during the whole run (a graph can be run again without setting them again); outputs live to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph import Graph
from tilewright.ops.reshape import Reshape
from tilewright.program.constants import ALIGNMENT


@dataclass(frozen=True)
class ArenaPlan:
    """Byte offset of every tensor and the size of the arena; all multiples of ALIGNMENT."""

    offsets: dict[str, int]
    bytes: int


@dataclass
class _Storage:
    """Bytes that one tensor or several aliases of it occupy during nodes first..last, inclusive."""

    bytes: int
    first: int
    last: int
    offset: int = 0

    def meets(self, other: _Storage) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(graph: Graph) -> ArenaPlan:
    """Largest storage first, each at the lowest offset that is free while it lives."""
    storages = _storages(graph)
    unique = list({id(s): s for s in storages.values()}.values())
    placed: list[_Storage] = []
    for storage in sorted(unique, key=lambda s: (-s.bytes, s.first)):
        storage.offset = _lowest_gap(storage, placed)
        placed.append(storage)
    end = max((s.offset + s.bytes for s in placed), default=0)
    return ArenaPlan({name: s.offset for name, s in storages.items()}, end)


def _storages(graph: Graph) -> dict[str, _Storage]:
    end = len(graph.nodes)
    storages: dict[str, _Storage] = {}
    for border in graph.inputs:
        storages[border.tensor] = _Storage(_aligned(graph.tensors[border.tensor].bytes), -1, end)
    for i, node in enumerate(graph.nodes):
        for name in node.inputs:
            storages[name].last = max(storages[name].last, i)
        for name in node.outputs:
            if isinstance(node.op, Reshape):
                storages[name] = storages[node.inputs[0]]
            else:
                storages[name] = _Storage(_aligned(graph.tensors[name].bytes), i, i)
    for border in graph.outputs:
        storages[border.tensor].last = end
    return storages


def _lowest_gap(storage: _Storage, placed: list[_Storage]) -> int:
    offset = 0
    for other in sorted((p for p in placed if p.meets(storage)), key=lambda p: p.offset):
        if offset + storage.bytes <= other.offset:
            break
        offset = max(offset, other.offset + other.bytes)
    return offset


def _aligned(size: int) -> int:
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT
