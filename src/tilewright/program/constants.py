"""Where the constants of a graph lie: one image, stored once, read by C and by every program."""

from __future__ import annotations

import builtins
import hashlib
from dataclasses import dataclass

import numpy as np

from tilewright.graph import Array, Graph

ALIGNMENT = 64


@dataclass(frozen=True)
class ConstantImage:
    """The bytes of all constants and the offset of each.

    Args:
        offsets: (node name, constant name) -> byte offset, a multiple of ALIGNMENT.
        chunks: (offset, array) in ascending order; equal arrays are stored once.
        bytes: size of the image, a multiple of ALIGNMENT.
    """

    offsets: dict[tuple[str, str], int]
    chunks: tuple[tuple[int, Array], ...]
    bytes: int

    def tobytes(self) -> builtins.bytes:
        image = bytearray(self.bytes)
        for offset, array in self.chunks:
            image[offset : offset + array.nbytes] = np.ascontiguousarray(array).tobytes()
        return bytes(image)


def lay_out(graph: Graph) -> ConstantImage:
    """Place every constant of `graph` in node order."""
    offsets: dict[tuple[str, str], int] = {}
    chunks: list[tuple[int, Array]] = []
    known: dict[tuple[str, tuple[int, ...], bytes], int] = {}
    end = 0
    for node in graph.nodes:
        for name, array in node.op.constant_arrays().items():
            digest = hashlib.sha256(np.ascontiguousarray(array).data).digest()
            key = (array.dtype.str, array.shape, digest)
            if key not in known:
                known[key] = end
                chunks.append((end, array))
                end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
            offsets[node.name, name] = known[key]
    return ConstantImage(offsets, tuple(chunks), end)
