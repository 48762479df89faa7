"""Normalisations whose group is the last axes of a tensor: integer form, matching, binding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute
from tilewright.ops import elementwise, normalization
from tilewright.ops.builder import Builder
from tilewright.ops.normalization import AffineEnd, Normalization
from tilewright.ops.pattern import FloatGraph, Refusal, Site, attribute_int, shape_of
from tilewright.ops.protocol import Region, Span, Split, Tile, region_shape
from tilewright.program import isa

LIMITS = (
    "last axes, up to 56,757 values at 16 bits, 7 million at 8; scale and bias constant; "
    "Relu and Clip fuse behind it"
)


@dataclass(frozen=True, eq=False)
class LastAxesNormalization(Normalization):
    """Base of those whose group is the stored axes from `axis` on.

    `gains` has a record for each element of a group, or one for all of them.
    """

    axis: int = attribute("first stored axis of the group")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        count = math.prod(x.shape[self.axis :])
        self.prove(x, count, where)
        if len(self.gains) not in (1, count):
            raise QuantizationError(f"{where}: {len(self.gains)} gains do not fit {count} values")
        return (x.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        q = x.astype(np.int64).reshape(-1, math.prod(x.shape[self.axis :])) - xt.zero_point
        return [self.finish(q, self.gains, yt).reshape(yt.shape)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return ((*region[: self.axis], *(Span(0, n) for n in output.shape[self.axis :])),)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return tuple(Split(axis) for axis in range(self.axis))

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        (view,) = tile.inputs
        x, y = view.origin(tile.region), tile.output.origin(tile.region)
        shape = region_shape(tile.region)
        lead, group = shape[: self.axis], shape[self.axis :]
        strides = view.strides, tile.output.strides
        record = isa.AffineRecord.packed_size() if len(self.gains) > 1 else 0
        gains = [record * math.prod(group[i + 1 :]) for i in range(len(group))]
        return [
            self.instruction(
                tile,
                (x + box.offsets[0], y + box.offsets[1], tile.constants["gains"]),
                (box.shape, [*box.strides, (0, 0)]),
                (group, [*(s[self.axis :] for s in strides), gains]),
            )
            for box in elementwise.boxes(lead, [s[: self.axis] for s in strides], 2)
        ]


@dataclass(frozen=True)
class LastAxesPattern:
    """A normalisation over neighbouring ONNX axes, those of gamma and beta."""

    axes: tuple[int, ...]
    end: AffineEnd


def match_last_axes(kind: str, node: ir.Node, graph: FloatGraph) -> Site | Refusal:
    """The site of a node with ONNX attribute `axis` and operands x, scale and perhaps bias."""
    x = node.inputs[0]
    assert x is not None
    if any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return Refusal("its mean or inverse deviation is read")
    shape = shape_of(x)
    axes = tuple(range(attribute_int(node, "axis", -1) % len(shape), len(shape)))
    group = shape[axes[0] :]
    count = math.prod(group)
    refusal = normalization.too_long(count, graph.encoding(x))
    if refusal is not None:
        return refusal
    end = normalization.affine_end(node, graph, group)
    if isinstance(end, Refusal):
        return end
    nodes, pattern = (node, *end.activation.nodes), LastAxesPattern(axes, end)
    narrow = count > normalization.longest(DType.S16)
    return Site(kind, nodes, (x,), (end.activation.output,), pattern, narrow_inputs=narrow)


def bind_last_axes(operator: type[LastAxesNormalization], site: Site, builder: Builder) -> None:
    """The operand with the normalised axes last, otherwise in the order in which it is stored."""
    pattern: LastAxesPattern = site.pattern
    value = site.outputs[0]
    order = builder.operand(site.inputs[0]).permutation
    group = tuple(a for a in order if a in pattern.axes)
    layout = (*(a for a in order if a not in pattern.axes), *group)
    x = builder.operand(site.inputs[0], layout)
    axis = len(layout) - len(group)
    count = math.prod(x.type.shape[axis:])
    end = pattern.end.transposed([pattern.axes.index(a) for a in group])
    output = builder.encoding(value)
    fields = normalization.bound_fields(operator, end, x.type, output, count, site.name)
    builder.add(operator(axis=axis, **fields), [x], output, layout, value)
