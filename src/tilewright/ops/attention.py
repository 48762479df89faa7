"""Attention: queries times keys, Softmax, times values, as one operator.

score = sat_s16(R24(sum (q-zq)*(k-zk); alpha*sq*sk/ss) + C + R24(m-zm; beta*sm/ss))
p     = u8 exponentials of the scores,  S = sum of p,  acc = sum p*(v-zv)
y     = sat(R24((acc * (2**39 // S) + 2**22) >> 23; 2**-16*sv/sy) + zy)

(section 11 of the arithmetic).  Scores never leave the array's scratch memory.

All operands share one stored order: batch axes, rows (queries or keys) at `row_axis`, depth last.
Heads are a batch axis, so that splitting them off the channels and joining them moves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute, constant
from tilewright.ops import elementwise
from tilewright.ops.builder import Builder, Operand, Permutation
from tilewright.ops.matmul import operand_of, product_ratio, prove_product
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    Work,
    region_elements,
)
from tilewright.ops.scores import (
    LONGEST,
    Scores,
    bias_rows,
    is_plain,
    match_scores,
    same_rows,
    summed,
)
from tilewright.program import isa

ONNX = ("MatMul",)
KINDS = ("Attention",)
TYPES = "u8, s8, s16 in any mixture; scores s16"
LIMITS = f"MatMul, scale, biases, one mask, Softmax, MatMul; up to {LONGEST} keys"

SCRATCH_BYTES = 1 << 17
"""Of scores that an instruction holds at a time, at least one row."""

REFERENCE_SCORES = 1 << 20
"""How many the reference holds at a time."""

BIAS_LIMIT = 131071
"""Steps of the scores that constants add at most: beyond twice their range nothing changes."""

WEIGHT_TYPE = TensorType(DType.U8, (), 1.0, 0)
"""What multiplies the values: probabilities as u8."""


@dataclass(frozen=True, eq=False)
class Attention(NpuOperator):
    """Softmax(q @ k^T + C + m) @ v over the rows of every batch entry."""

    CODE = 51
    row_axis: int = attribute("axis of the queries in q and the output, of the keys in k and v")
    pre_shift: int = attribute("pre-shift of the scores' R24")
    score_multiplier: int = attribute("multiplier of the scores' R24")
    score_shift: int = attribute("shift of the scores' R24")
    mask_multiplier: int = attribute("multiplier of the mask's R24")
    mask_shift: int = attribute("shift of the mask's R24")
    exponent_multiplier: int = attribute("multiplier of the exponent's R24")
    exponent_shift: int = attribute("shift of the exponent's R24")
    multiplier: int = attribute("multiplier of the output's R24")
    shift: int = attribute("shift of the output's R24")
    bias_step: int = attribute("rows of `bias` from one query to the next: 1 or 0")
    bias_batch: tuple[int, ...] = attribute(
        "extents of the batch axes; none without bias", count=-1
    )
    bias_first: tuple[int, ...] = attribute(
        "row of `bias` of each batch entry's first query", count=-1
    )
    bias: Array | None = constant(
        "s16 or s32, in steps of the scores", axes=("rows", "keys"), optional=True
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        q, k, v, *masks = inputs
        elementwise.require_activations(inputs, where)
        shapes = [x.shape for x in inputs]
        if len({len(s) for s in shapes}) != 1 or not 0 <= self.row_axis < len(q.shape) - 1:
            raise QuantizationError(f"{where}: its operands {shapes} differ in rank")
        keys = k.shape[self.row_axis]
        if q.shape[-1] != k.shape[-1] or v.shape[self.row_axis] != keys or len(masks) > 1:
            raise QuantizationError(f"{where}: its operands {shapes} do not fit")
        if keys > LONGEST:
            raise QuantizationError(f"{where}: rows of {keys} keys")
        bound = prove_product(q.shape[-1], q, k, where)
        if numerics.pre_shift_for(bound) > self.pre_shift:
            raise QuantizationError(f"{where}: its accumulator can reach {bound}, beyond R24")
        prove_product(keys, WEIGHT_TYPE, v, where)
        rows = q.shape[self.row_axis]
        lead = elementwise.broadcast_shape([self._batch_of(x) for x in (q, k, v)], where)
        scores = (*lead[: self.row_axis], rows, *lead[self.row_axis :], keys)
        for mask in masks:
            if elementwise.broadcast_shape([mask.shape, scores], where) != scores:
                raise QuantizationError(f"{where}: its mask {mask.shape} does not fit {scores}")
            if abs(int(numerics.r24(mask.reach, self.mask_multiplier, self.mask_shift))) >= 2**30:
                raise QuantizationError(f"{where}: its mask leaves 31 bits in steps of the scores")
        self._check_bias(lead, rows, keys, where)
        return ((*scores[:-1], v.shape[-1]),)

    def _check_bias(self, batch: tuple[int, ...], rows: int, keys: int, where: str) -> None:
        if self.bias is None:
            return
        last = max(self.bias_first) + self.bias_step * (rows - 1)
        fits = self.bias_batch == batch and len(self.bias_first) == math.prod(batch)
        fits = fits and int(np.abs(self.bias.astype(np.int64)).max()) <= BIAS_LIMIT
        if not fits or self.bias.shape[1] != keys or last >= len(self.bias):
            raise QuantizationError(f"{where}: its constants do not fit its scores")

    def _batch_of(self, x: TensorType) -> tuple[int, ...]:
        return tuple(n for a, n in enumerate(x.shape[:-1]) if a != self.row_axis)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (yt,) = out
        q, k, v, *masks = (
            np.moveaxis(x.astype(np.int64) - t.zero_point, self.row_axis, -2)
            for x, t in zip(inputs, types, strict=True)
        )
        rows, entries = yt.shape[self.row_axis], math.prod(self._batch_of(yt))
        step = max(1, REFERENCE_SCORES // (entries * k.shape[-2]))
        parts = []
        for first in range(0, rows, step):
            block = slice(first, min(first + step, rows))
            own = [m if m.shape[-2] == 1 else m[..., block, :] for m in masks]
            score = self._scores(q[..., block, :] @ k.swapaxes(-1, -2), own, block)
            exponent = numerics.Multiplier(self.exponent_multiplier, self.exponent_shift)
            p = numerics.attention_weights(score, exponent)
            w = numerics.attention_means(p, p @ v)
            y = numerics.r24(w, self.multiplier, self.shift) + yt.zero_point
            parts.append(numerics.saturate(y, *yt.dtype.range).astype(yt.dtype.numpy))
        return [np.moveaxis(np.concatenate(parts, axis=-2), -2, self.row_axis)]

    def _scores(self, acc: Array, masks: Sequence[Array], rows: slice) -> Array:
        """Sums of products of some rows to saturated scores."""
        score = numerics.r24(acc, self.score_multiplier, self.score_shift, self.pre_shift)
        if self.bias is not None:
            first = np.array(self.bias_first).reshape(*self.bias_batch, 1)
            own = first + self.bias_step * np.arange(rows.start, rows.stop)
            score = score + self.bias.astype(np.int64)[own]
        for mask in masks:
            score = score + numerics.r24(mask, self.mask_multiplier, self.mask_shift)
        return numerics.saturate(score, *DType.S16.range)

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        """Rows of queries and of the mask; keys and values of the entries as a whole."""
        boxes = []
        for i, x in enumerate(inputs):
            box = list(elementwise.broadcast_needs(region, [(*x.shape[:-1], 1)])[0])
            if i in (1, 2):
                box[self.row_axis] = Span(0, x.shape[self.row_axis])
            box[-1] = Span(0, x.shape[-1])
            boxes.append(tuple(box))
        return tuple(boxes)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        batch = [a for a in range(len(output.shape) - 1) if a != self.row_axis]
        return tuple(Split(axis) for axis in (*batch, self.row_axis))

    def constant_rows(self, name: str, region: Region) -> Span:
        rows = region[self.row_axis]
        first = self._first_rows(region)
        return Span(
            min(first) + self.bias_step * rows.start,
            max(first) + self.bias_step * (rows.stop - 1) + 1,
        )

    def _first_rows(self, region: Region) -> list[int]:
        """`bias_first` of the entries of a region, in order."""
        spans = [s for a, s in enumerate(region[:-1]) if a != self.row_axis]
        table = np.array(self.bias_first).reshape(self.bias_batch)
        return [int(i) for i in table[tuple(slice(*s) for s in spans)].ravel()]

    def workspace(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> int:
        return 2 * self._block(region, inputs) * inputs[1].shape[self.row_axis]

    def _block(self, region: Region, inputs: Sequence[TensorType]) -> int:
        """Rows whose scores are held at a time."""
        row_bytes = 2 * inputs[1].shape[self.row_axis]
        return max(1, min(region[self.row_axis].size, SCRATCH_BYTES // row_bytes))

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        queries = region_elements(region[:-1])
        scores = queries * inputs[1].shape[self.row_axis]
        return Work(scores * (inputs[0].shape[-1] + output.shape[-1]), scores)

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        return [
            self._attend(tile, entry, number) for number, entry in enumerate(self._entries(tile))
        ]

    def _entries(self, tile: Tile) -> list[Region]:
        """The tile's region, one batch entry at a time."""
        axes = [
            [s] if a == self.row_axis else [Span(i, i + 1) for i in range(*s)]
            for a, s in enumerate(tile.region[:-1])
        ]
        return [(*entry, tile.region[-1]) for entry in itertools.product(*axes)]

    def _attend(self, tile: Tile, entry: Region, number: int) -> isa.Attend:
        types = [x.type for x in tile.inputs]
        y = tile.output
        boxes = self.needs(entry, types, y.type)
        q, k, v, *masks = tile.inputs
        rows, axis = entry[self.row_axis], self.row_axis
        bias, bias_strides, bias_type = 0, (0, 0), DType.S16
        if self.bias is not None:
            bias_strides = (self.bias_step * self.bias[0].nbytes, self.bias.itemsize)
            bias_type = DType.S16 if self.bias.itemsize == 2 else DType.S32
            row = self._first_rows(tile.region)[number] + self.bias_step * rows.start
            row -= self.constant_rows("bias", tile.region).start
            bias = tile.constants["bias"] + row * self.bias[0].nbytes
        mask, mask_strides, mask_type = 0, (0, 0), TensorType(DType.U8, (), 1.0, 0)
        if masks:
            (view,), mask_type = masks, masks[0].type
            mask = view.origin(boxes[3])
            shape = mask_type.shape
            mask_strides = (0 if shape[axis] == 1 else view.strides[axis], view.strides[-1])
            mask_strides = (mask_strides[0], 0 if shape[-1] == 1 else mask_strides[1])
        return isa.Attend(
            q=q.origin(boxes[0]),
            k=k.origin(boxes[1]),
            v=v.origin(boxes[2]),
            mask=mask,
            bias=bias,
            scratch=tile.workspace,
            y=y.origin(entry),
            shape=(rows.size, k.type.shape[axis], q.type.shape[-1], v.type.shape[-1]),
            block=self._block(tile.region, types),
            q_strides=(q.strides[axis], q.strides[-1]),
            k_strides=(k.strides[axis], k.strides[-1]),
            v_strides=(v.strides[axis], v.strides[-1]),
            mask_strides=mask_strides,
            bias_strides=bias_strides,
            y_strides=(y.strides[axis], y.strides[-1]),
            types=(*(t.dtype for t in types[:3]), mask_type.dtype, bias_type, y.type.dtype),
            zeros=(*(t.zero_point for t in types[:3]), mask_type.zero_point, y.type.zero_point),
            pre_shift=self.pre_shift,
            score_multiplier=self.score_multiplier,
            score_shift=self.score_shift,
            mask_multiplier=self.mask_multiplier,
            mask_shift=self.mask_shift,
            exponent_multiplier=self.exponent_multiplier,
            exponent_shift=self.exponent_shift,
            multiplier=self.multiplier,
            shift=self.shift,
        )


OPERATORS = (Attention,)


@dataclass(frozen=True)
class AttentionPattern:
    """Shape-level attention: scores and the values that they weigh."""

    scores: Scores
    values: ir.Value


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """All from the product with the keys to the product with the values, one reader each."""
    scores = match_scores(node, graph)
    if scores is None:
        return None
    value, nodes = scores.probabilities, list(scores.nodes)
    while True:
        reader = graph.sole_consumer(value) if graph.hides(value) else None
        if reader is None or not is_plain(reader):
            return None
        nodes.append(reader)
        if reader.op_type == "MatMul":
            break
        if reader.op_type != "Reshape" or not same_rows(value, reader.outputs[0]):
            return None
        value = reader.outputs[0]
    left, values = reader.inputs
    output = reader.outputs[0]
    product = scores.product
    operands = (product.a, product.b, values)
    if left is not value or values is value or shape_of(value) != scores.shape:
        return None
    if values is None or not all(_is_matrix(v) for v in (product.a, product.b, values)):
        return None
    inputs = [v for v in operands if v is not None and graph.constant(v) is None]
    inputs += [scores.mask.value] if scores.mask is not None else []
    depths = shape_of(product.a)[-1] + shape_of(output)[-1]
    return Site(
        "Attention",
        tuple(nodes),
        tuple(dict.fromkeys(inputs)),
        (output,),
        AttentionPattern(scores, values),
        inner=scores.value,
        macs=math.prod(scores.shape) * depths,
    )


def _is_matrix(value: ir.Value) -> bool:
    known = value.shape is not None and value.shape.is_static()
    return known and len(shape_of(value)) > 1 and value.dtype in (None, ir.DataType.FLOAT)


def bind(site: Site, builder: Builder) -> None:
    """Operands in one order, depth last; no copy where they are stored alike."""
    pattern: AttentionPattern = site.pattern
    scores, (value,) = pattern.scores, site.outputs
    output, inner = builder.encoding(value), builder.encoding(scores.value)
    product, rank = scores.product, len(shape_of(value))
    q, k, v = (
        elementwise.lifted(builder, operand_of(builder, x), rank)
        for x in (product.a, product.b, pattern.values)
    )
    k = _as_rows(k)
    layout = shared_layout([q, k, v])
    operands = [_stored(builder, x, layout) for x in (q, k, v)]
    qt, kt, vt = (x.type for x in operands)
    step, pre_shift = product_ratio(qt.shape[-1], qt, kt, site.name)
    score = numerics.multiplier(product.alpha * step / inner.scale, site.name)
    mask = numerics.Multiplier(0, numerics.MAX_SHIFT)
    if scores.mask is not None:
        m = elementwise.lifted(builder, builder.operand(scores.mask.value), rank)
        operands.append(_stored(builder, m, layout))
        mask = numerics.multiplier(scores.mask.factor * m.type.scale / inner.scale, site.name)
    exponent = numerics.softmax_multiplier(inner.scale)
    m_out, shift = numerics.multiplier(2.0**-16 * vt.scale / output.scale, site.name)
    op = Attention(
        row_axis=layout.index(rank - 2),
        pre_shift=pre_shift,
        score_multiplier=score.m,
        score_shift=score.shift,
        mask_multiplier=mask.m,
        mask_shift=mask.shift,
        exponent_multiplier=exponent.m,
        exponent_shift=exponent.shift,
        multiplier=m_out,
        shift=shift,
        **_bias_fields(scores, inner.scale, layout),
    )
    builder.add(op, operands, output, layout, value)


def _bias_fields(scores: Scores, scale: float, layout: Permutation) -> dict[str, Any]:
    """Constants of the scores in the order of the stored batch axes, narrow where they fit."""
    if not scores.addends:
        return {"bias_step": 0, "bias_batch": (), "bias_first": (), "bias": None}
    rank = len(layout)
    codes = numerics.attention_constants(summed(scores.addends, scores.shape), scale)
    shape = (1,) * (rank - len(scores.shape)) + scores.shape
    codes = codes.reshape((1,) * (rank - codes.ndim) + codes.shape)
    batch_axes = [p for p in layout if p < rank - 2]
    batch = tuple(shape[a] for a in batch_axes)
    found = bias_rows(codes.transpose(*batch_axes, rank - 2, rank - 1), batch)
    narrow = np.abs(found.rows).max() <= DType.S16.range.hi
    dtype = DType.S16 if narrow else DType.S32
    return {
        "bias_step": found.step,
        "bias_batch": batch,
        "bias_first": found.first,
        "bias": found.rows.astype(dtype.numpy),
    }


def _as_rows(k: Operand) -> Operand:
    """Transposed keys [.., depth, keys] seen as [.., keys, depth]: a change of names."""
    rank = len(k.permutation)
    swapped = {rank - 1: rank - 2, rank - 2: rank - 1}
    return Operand(k.name, k.type, tuple(swapped.get(p, p) for p in k.permutation))


def shared_layout(operands: Sequence[Operand]) -> Permutation:
    """The stored order, depth last, that most of the operands' elements are in already."""
    rank = len(operands[0].permutation)
    usual = (*range(rank - 3), rank - 2, rank - 3, rank - 1) if rank > 3 else tuple(range(rank))
    offered = [usual, *(x.permutation for x in operands if x.permutation[-1] == rank - 1)]
    return max(
        dict.fromkeys(offered),
        key=lambda order: sum(x.type.elements for x in operands if is_stored(x, order)),
    )


def is_stored(operand: Operand, layout: Permutation) -> bool:
    """Is the operand in this order, axes of extent 1 aside?"""
    wide = [p for p, n in zip(operand.permutation, operand.type.shape, strict=True) if n > 1]
    return wide == [p for p in layout if p in wide]


def _stored(builder: Builder, operand: Operand, layout: Permutation) -> Operand:
    return operand if operand.permutation == layout else builder.permuted(operand, layout)
