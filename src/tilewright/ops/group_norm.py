"""GroupNormalization and InstanceNormalization: all places of a group of channels at once.

d = C*q - S1,  W = C*S2 - S1**2 + eps',  S1 = sum q,  S2 = sum q**2

over the C values of a group (section 12 of the arithmetic); gamma and beta are those of the
channel.  InstanceNormalization has a group for each channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute
from tilewright.ops import normalization
from tilewright.ops.builder import Builder
from tilewright.ops.layer_norm import deviations
from tilewright.ops.normalization import AffineEnd, Normalization
from tilewright.ops.pattern import FloatGraph, Refusal, Site, attribute_int, shape_of
from tilewright.ops.protocol import Region, Span, Split, Tile, region_shape, strided_axes
from tilewright.program import isa

ONNX = ("GroupNormalization", "InstanceNormalization")
KINDS = ("GroupNorm",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = (
    "groups of up to 56,757 values at 16 bits, 7 million at 8; scale and bias constant; "
    "Relu and Clip fuse behind it"
)


@dataclass(frozen=True, eq=False)
class GroupNorm(Normalization):
    """LayerNorm of each image's groups of channels, which are the last stored axis."""

    CODE = 42
    INSTRUCTION = isa.Normalize
    groups: int = attribute("number of channel groups")

    def spread(self, q: Array) -> tuple[Array, Array]:
        return deviations(q)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        channels = x.shape[-1]
        if len(x.shape) < 2 or channels % self.groups or len(self.gains) != channels:
            raise QuantizationError(
                f"{where}: {self.groups} groups and {len(self.gains)} gains do not fit {x.shape}"
            )
        self.prove(x, math.prod(x.shape[1:]) // self.groups, where)
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        images, places, channels = len(x), math.prod(x.shape[1:-1]), x.shape[-1]
        width = channels // self.groups
        q = x.astype(np.int64).reshape(images, places, self.groups, width) - xt.zero_point
        grouped = q.transpose(0, 2, 1, 3).reshape(images, self.groups, places * width)
        records = np.tile(self.gains.reshape(self.groups, width), (1, places))
        y = self.finish(grouped, records, yt).reshape(images, self.groups, places, width)
        return [y.transpose(0, 2, 1, 3).reshape(yt.shape)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return ((region[0], *(Span(0, n) for n in output.shape[1:-1]), region[-1]),)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return Split(0), Split(len(output.shape) - 1, output.shape[-1] // self.groups)

    def constant_rows(self, name: str, region: Region) -> Span:
        return region[-1]

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        images, *places, channels = region_shape(tile.region)
        width = tile.output.type.shape[-1] // self.groups
        record = isa.AffineRecord.packed_size()
        strides = view.strides, tile.output.strides
        area, place_strides = strided_axes(places, [s[1:-1] for s in strides], 2)
        outer = [(s[0], width * s[-1]) for s in strides]
        inner = [(*p, s[-1]) for p, s in zip(place_strides, strides, strict=True)]
        return [
            self.instruction(
                tile,
                (
                    view.origin(tile.region),
                    tile.output.origin(tile.region),
                    tile.constants["gains"],
                ),
                ((images, channels // width), [*outer, (0, width * record)]),
                ((*area, width), [*inner, (0, 0, record)]),
            )
        ]


OPERATORS = (GroupNorm,)


@dataclass(frozen=True)
class GroupNormPattern:
    """`groups` groups of ONNX axis 1, each with all places of the axes behind it."""

    groups: int
    end: AffineEnd


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A node with constant scale and bias for each channel."""
    x = node.inputs[0]
    assert x is not None
    _, channels, *places = shape_of(x)
    each = node.op_type == "InstanceNormalization"
    groups = channels if each else attribute_int(node, "num_groups", 1)
    count = channels // groups * math.prod(places)
    refusal = normalization.too_long(count, graph.encoding(x))
    if refusal is not None:
        return refusal
    end = normalization.affine_end(node, graph, (channels,))
    if isinstance(end, Refusal):
        return end
    nodes, pattern = (node, *end.activation.nodes), GroupNormPattern(groups, end)
    narrow = count > normalization.longest(DType.S16)
    return Site("GroupNorm", nodes, (x,), (end.activation.output,), pattern, narrow_inputs=narrow)


def bind(site: Site, builder: Builder) -> None:
    """The operand with images first and channels last, places in the order as stored."""
    pattern: GroupNormPattern = site.pattern
    value = site.outputs[0]
    order = builder.operand(site.inputs[0]).permutation
    layout = (0, *(a for a in order if a > 1), 1)
    x = builder.operand(site.inputs[0], layout)
    count = math.prod(x.type.shape[1:]) // pattern.groups
    output = builder.encoding(value)
    fields = normalization.bound_fields(GroupNorm, pattern.end, x.type, output, count, site.name)
    builder.add(GroupNorm(groups=pattern.groups, **fields), [x], output, layout, value)
