"""RMSNormalization over the last axes.

d = C*(q - z),  W = C * sum (q - z)**2 + eps'

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

ONNX = ("RMSNormalization",)
KINDS = ("RmsNorm",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = last_axes.LIMITS


@dataclass(frozen=True, eq=False)
class RmsNorm(LastAxesNormalization):
    """Values over the group's root mean square."""

    CODE = 41
    INSTRUCTION = isa.NormalizeRms

    def spread(self, q: Array) -> tuple[Array, Array]:
        count = q.shape[-1]
        return count * q, count * (q * q).sum(axis=-1, keepdims=True)


OPERATORS = (RmsNorm,)


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """An RMSNormalization node (opset 23) with a constant scale."""
    return last_axes.match_last_axes("RmsNorm", node, graph)


def bind(site: Site, builder: Builder) -> None:
    """The operand with the normalised axes last."""
    last_axes.bind_last_axes(RmsNorm, site, builder)
