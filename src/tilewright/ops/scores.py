"""What lies between the two products of an attention: scale, biases, masks, Softmax.

    probabilities = Softmax(alpha * q @ k + constants + beta * mask)

Exporters write the addends one by one, and those of windows behind a Reshape that gives the windows
an axis of their own; constants are summed here, in float64, whatever their form.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from tilewright.graph import Array
from tilewright.ops.matmul import ScaledProduct, scaled_product, scaling
from tilewright.ops.pattern import FloatGraph, attribute_int, shape_of

LONGEST = 2**15
"""Keys of a row, so that sums of 8-bit products fit 32 bits."""


@dataclass(frozen=True)
class Addend:
    """A constant, float64, added to scores of this shape."""

    values: Array
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Mask:
    """A run-time tensor, added with a factor."""

    value: ir.Value
    factor: float


@dataclass(frozen=True)
class Scores:
    """The Softmax of a product of queries and keys.

    Args:
        product: queries times keys, and its factor.
        nodes: all of them, Softmax last.
        value: the scores, input of Softmax.
        shape: of the product and of the scores.
        addends: constants.
        mask: at most one run-time addend.
    """

    product: ScaledProduct
    nodes: tuple[ir.Node, ...]
    value: ir.Value
    shape: tuple[int, ...]
    addends: tuple[Addend, ...] = ()
    mask: Mask | None = None

    @property
    def probabilities(self) -> ir.Value:
        return self.nodes[-1].outputs[0]


def match_scores(node: ir.Node, graph: FloatGraph) -> Scores | None:
    """Scores that begin with the product `node`; None where anything else lies between."""
    product = scaled_product(node, graph)
    shape = shape_of(product.output)
    found: Scores | None = Scores(product, product.nodes, product.output, shape)
    while found is not None:
        reader = graph.sole_consumer(found.value)
        if reader is None or not is_plain(reader):
            return None
        if reader.op_type == "Softmax":
            return _with_softmax(found, reader, graph)
        found = _with(found, reader, graph) if graph.hides(found.value) else None
    return None


def _with_softmax(scores: Scores, node: ir.Node, graph: FloatGraph) -> Scores | None:
    shape = shape_of(scores.value)
    axis = attribute_int(node, "axis", -1) % len(shape)
    if axis != len(shape) - 1 or shape[-1] > LONGEST or not graph.hides_as_s16(scores.value):
        return None
    return replace(scores, nodes=(*scores.nodes, node))


def _with(scores: Scores, node: ir.Node, graph: FloatGraph) -> Scores | None:
    """The scores with one more node behind them."""
    if node.op_type in ("Add", "Sub"):
        return _with_sum(scores, node, graph)
    if node.op_type == "Reshape":
        return _behind(scores, node) if same_rows(scores.value, node.outputs[0]) else None
    factor = scaling(node, graph)
    if factor is None:
        return None
    by = factor[1]
    mask = None if scores.mask is None else Mask(scores.mask.value, by * scores.mask.factor)
    return replace(
        _behind(scores, node),
        product=replace(scores.product, alpha=by * scores.product.alpha),
        addends=tuple(Addend(by * a.values, a.shape) for a in scores.addends),
        mask=mask,
    )


def _with_sum(scores: Scores, node: ir.Node, graph: FloatGraph) -> Scores | None:
    shape = shape_of(scores.value)
    first, second = node.inputs
    other = second if first is scores.value else first
    if other is None or shape_of(node.outputs[0]) != shape:
        return None
    sign = -1.0 if node.op_type == "Sub" else 1.0
    if sign < 0 and first is not scores.value:
        return None
    grown = _behind(scores, node)
    array = graph.constant(other)
    if array is not None:
        if np.isnan(array).any():
            return None
        addend = Addend(sign * array.astype(np.float64), shape)
        return replace(grown, addends=(*scores.addends, addend))
    is_plain = other.dtype in (None, ir.DataType.FLOAT) and other.shape is not None
    if scores.mask is not None or not is_plain or shape != scores.shape or not shape_of(other):
        return None
    return replace(grown, mask=Mask(other, sign))


def is_plain(node: ir.Node) -> bool:
    """Is it an ONNX operator of its own whose output has a known shape?"""
    shape = node.outputs[0].shape
    return node.domain in ("", "ai.onnx") and shape is not None and shape.is_static()


def same_rows(before: ir.Value, after: ir.Value) -> bool:
    """Does a Reshape keep queries and keys as they are?"""
    return len(shape_of(after)) > 1 and shape_of(before)[-2:] == shape_of(after)[-2:]


def _behind(scores: Scores, node: ir.Node) -> Scores:
    return replace(scores, nodes=(*scores.nodes, node), value=node.outputs[0])


def summed(addends: tuple[Addend, ...], shape: tuple[int, ...]) -> Array:
    """All constants together: float64, of the rank of `shape`, extents 1 where they repeat.

    Args:
        shape: of the scores; keys are stored in full.
    """
    total = np.zeros((1,) * (len(shape) - 1) + shape[-1:])
    for addend in addends:
        values = addend.values
        values = values.reshape((1,) * (len(addend.shape) - values.ndim) + values.shape)
        if addend.shape != shape:
            lead = np.broadcast_to(values, (*addend.shape[:-2], *values.shape[-2:]))
            values = lead.reshape(*shape[:-2], *values.shape[-2:])
        total = total + values
    return total


@dataclass(frozen=True)
class BiasRows:
    """Constants of scores with equal parts stored once.

    Args:
        rows: [rows, keys].
        first: row of each batch entry's first query.
        step: rows from one query to the next: 1, or 0 where all queries share one.
    """

    rows: Array
    first: tuple[int, ...]
    step: int


@dataclass
class _Parts:
    """Parts seen so far, by content."""

    known: dict[bytes, int] = field(default_factory=dict)
    parts: list[Array] = field(default_factory=list)
    rows: int = 0

    def add(self, part: Array) -> int:
        key = part.tobytes()
        if key not in self.known:
            self.known[key] = self.rows
            self.parts.append(part)
            self.rows += len(part)
        return self.known[key]


def bias_rows(codes: Array, batch: tuple[int, ...]) -> BiasRows:
    """Codes [batch axes in stored order, queries or 1, keys] as rows.

    Args:
        batch: extents of the batch axes; those of `codes` may be 1 instead.
    """
    parts = _Parts()
    at: dict[tuple[int, ...], int] = {}
    first = []
    for entry in itertools.product(*map(range, batch)):
        own = tuple(i if n > 1 else 0 for i, n in zip(entry, codes.shape, strict=False))
        if own not in at:
            at[own] = parts.add(np.ascontiguousarray(codes[own]))
        first.append(at[own])
    return BiasRows(np.concatenate(parts.parts), tuple(first), int(codes.shape[-2] > 1))
