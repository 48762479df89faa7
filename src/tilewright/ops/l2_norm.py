"""LpNormalization with p = 2: a vector over its Euclidean norm, zero staying zero.

d = q - z,  W = sum (q - z)**2

(section 12 of the arithmetic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from tilewright.graph import Array
from tilewright.ops import last_axes
from tilewright.ops.activation import absorb_clamps
from tilewright.ops.builder import Builder
from tilewright.ops.last_axes import LastAxesNormalization, LastAxesPattern
from tilewright.ops.normalization import AffineEnd
from tilewright.ops.pattern import FloatGraph, Refusal, Site, attribute_int, shape_of
from tilewright.program import isa

ONNX = ("LpNormalization",)
KINDS = ("L2Norm",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = "p = 2, any axis"


@dataclass(frozen=True, eq=False)
class L2Norm(LastAxesNormalization):
    """Values over the root of the sum of their squares."""

    CODE = 43
    INSTRUCTION = isa.NormalizeL2
    BITS: ClassVar[int] = 24

    @classmethod
    def unit(cls, _count: int) -> int:
        return 1

    def spread(self, q: Array) -> tuple[Array, Array]:
        return q, (q * q).sum(axis=-1, keepdims=True)


OPERATORS = (L2Norm,)


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """An LpNormalization node with p = 2."""
    x = node.inputs[0]
    assert x is not None
    p = attribute_int(node, "p", 2)
    if p != 2:
        return Refusal(f"it has p = {p}; only p = 2 is supported")
    axis = attribute_int(node, "axis", -1) % len(shape_of(x))
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    end = AffineEnd(np.ones(1), np.zeros(1), 0.0, activation)
    nodes, pattern = (node, *activation.nodes), LastAxesPattern((axis,), end)
    return Site("L2Norm", nodes, (x,), (activation.output,), pattern)


def bind(site: Site, builder: Builder) -> None:
    """The operand with the axis last."""
    last_axes.bind_last_axes(L2Norm, site, builder)
