"""LayerNormalization over the last axes.

d = C*q - S1,  W = C*S2 - S1**2 + eps',  S1 = sum q,  S2 = sum q**2

(section 12 of the arithmetic).
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from tilewright.graph import Array
from tilewright.ops import last_axes
from tilewright.ops.builder import Builder
from tilewright.ops.last_axes import LastAxesNormalization
from tilewright.ops.pattern import FloatGraph, Refusal, Site
from tilewright.program import isa

ONNX = ("LayerNormalization",)
KINDS = ("LayerNorm",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = last_axes.LIMITS


@dataclass(frozen=True, eq=False)
class LayerNorm(LastAxesNormalization):
    """Deviations from the group's mean over their root mean square."""

    CODE = 40
    INSTRUCTION = isa.Normalize

    def spread(self, q: Array) -> tuple[Array, Array]:
        return deviations(q)


OPERATORS = (LayerNorm,)


def deviations(q: Array) -> tuple[Array, Array]:
    """d and W without eps' of int64 groups [..., C]; a zero point changes neither."""
    count, s1 = q.shape[-1], q.sum(axis=-1, keepdims=True)
    return count * q - s1, count * (q * q).sum(axis=-1, keepdims=True) - s1 * s1


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A LayerNormalization node with constant scale and bias, its statistics unused."""
    return last_axes.match_last_axes("LayerNorm", node, graph)


def bind(site: Site, builder: Builder) -> None:
    """The operand with the normalised axes last."""
    last_axes.bind_last_axes(LayerNorm, site, builder)
