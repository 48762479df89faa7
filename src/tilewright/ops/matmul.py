"""MatMul: product of two tensors that both change at run time, or of one and a constant batch.

acc[.., m, n] = sum over k of (a[.., m, k] - za) * (b[.., k, n] - zb)
y = sat(R24(acc; alpha*sa*sb/sy) + zy)

Batch axes broadcast.  Terms are stored last in `a`; `b` is read in whatever order it is stored
(section 4 of the arithmetic, its bound from the ranges of the types).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, Encoding, TensorType, attribute
from tilewright.ops import accumulator, constant, elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder, Operand, Permutation, onnx_order
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    Work,
    region_elements,
    region_shape,
)
from tilewright.ops.reshape import Reshape
from tilewright.program import isa

ONNX = ("MatMul",)
KINDS = ("MatMul",)
TYPES = "u8, s8, s16 in any mixture"
LIMITS = "any batch axes; a constant scale and clamps fuse"


@dataclass(frozen=True, eq=False)
class MatMul(NpuOperator):
    """Product of two tensors of one rank over the last axis of the first."""

    CODE = 50
    row_axis: int = attribute("axis of the rows in the first input and in the output")
    b_axes: tuple[int, ...] = attribute(
        "for each axis of the second input, the output axis that it follows; terms: `row_axis`",
        count=-1,
    )
    pre_shift: int = attribute("pre-shift of R24")
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")
    lo: int = attribute("lower clamp")
    hi: int = attribute("upper clamp")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        a, b = inputs
        elementwise.require_activations(inputs, where)
        rank = len(a.shape)
        if (
            len(b.shape) != rank
            or sorted(self.b_axes) != list(range(rank))
            or not 0 <= self.row_axis < rank - 1
        ):
            raise QuantizationError(f"{where}: axes {self.b_axes} do not fit {a.shape}, {b.shape}")
        extents = self._extents(b)
        terms = extents[self.row_axis]
        if a.shape[-1] != terms:
            raise QuantizationError(f"{where}: sums of {a.shape[-1]} and of {terms} terms")
        bound = prove_product(terms, a, b, where)
        if numerics.pre_shift_for(bound) > self.pre_shift:
            raise QuantizationError(f"{where}: its accumulator can reach {bound}, beyond R24")
        extents[self.row_axis] = 1
        first = (*a.shape[:-1], 1)
        return (elementwise.broadcast_shape([first, tuple(extents)], where),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (a, b), (at, bt), (yt,) = inputs, types, out
        left = np.moveaxis(a.astype(np.int64) - at.zero_point, self.row_axis, -2)
        right = b.astype(np.int64).transpose(np.argsort(self.b_axes)) - bt.zero_point
        acc = np.moveaxis(left @ np.moveaxis(right, self.row_axis, -2), -2, self.row_axis)
        y = numerics.r24(acc, self.multiplier, self.shift, self.pre_shift) + yt.zero_point
        return [numerics.saturate(y, self.lo, self.hi).astype(yt.dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        a, b = inputs
        terms = Span(0, a.shape[-1])
        (first,) = elementwise.broadcast_needs(region, [(*a.shape[:-1], output.shape[-1])])
        second = []
        for axis, n in zip(self.b_axes, b.shape, strict=True):
            if axis == self.row_axis:
                second.append(terms)
            else:
                last = axis == len(region) - 1
                second.append(region[axis] if n > 1 or last else Span(0, 1))
        return (*first[:-1], terms), tuple(second)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        """Batch axes before rows before columns: what is read again grows in that order."""
        last = len(output.shape) - 1
        batch = [a for a in range(last) if a != self.row_axis]
        return tuple(Split(axis) for axis in (*batch, self.row_axis, last))

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        return Work(macs=region_elements(region) * inputs[0].shape[-1])

    def emit(self, tile: Tile) -> list[isa.Instruction]:
        a, b = tile.inputs
        y = tile.output
        rows, last = self.row_axis, len(tile.region) - 1
        needs = self.needs(tile.region, [a.type, b.type], y.type)
        b_strides = [b.strides[i] for i in np.argsort(self.b_axes)]
        extents = self._extents(b.type)
        batch = [axis for axis in range(last) if axis != rows]
        strides = (
            [0 if a.type.shape[axis] == 1 else a.strides[axis] for axis in batch],
            [0 if extents[axis] == 1 else b_strides[axis] for axis in batch],
            [y.strides[axis] for axis in batch],
        )
        shape = region_shape(tile.region)
        return [
            isa.MatrixProduct(
                a=a.origin(needs[0]) + box.offsets[0],
                b=b.origin(needs[1]) + box.offsets[1],
                y=y.origin(tile.region) + box.offsets[2],
                shape=(*box.shape, shape[rows], a.type.shape[-1], shape[-1]),
                a_strides=(*box.strides[0], a.strides[rows], a.strides[-1]),
                b_strides=(*box.strides[1], b_strides[rows], b_strides[last]),
                y_strides=(*box.strides[2], y.strides[rows], y.strides[-1]),
                types=(a.type.dtype, b.type.dtype, y.type.dtype),
                zeros=(a.type.zero_point, b.type.zero_point, y.type.zero_point),
                pre_shift=self.pre_shift,
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=(self.lo, self.hi),
            )
            for box in elementwise.boxes([shape[axis] for axis in batch], strides, 2)
        ]

    def _extents(self, b: TensorType) -> list[int]:
        """The second input's shape in the order of the output's axes; terms at `row_axis`."""
        return [b.shape[i] for i in np.argsort(self.b_axes)]


OPERATORS = (MatMul,)


def prove_product(terms: int, a: TensorType, b: TensorType, where: str) -> int:
    """Bound of a sum of products of two run-time operands (section 4).

    Raises:
        QuantizationError: it may leave 32 bits (8-bit operands) or 48 bits (a 16-bit operand).
    """
    bound = terms * a.reach * b.reach
    limit = accumulator.limit(a.dtype, b.dtype)
    if bound >= limit:
        raise QuantizationError(
            f"{where}: a sum of {terms} products can reach {bound}, the limit is {limit}",
            fix="keep this product in float",
            code="TW-3114",
        )
    return bound


def product_ratio(terms: int, a: TensorType, b: TensorType, where: str) -> tuple[float, int]:
    """Real value of an accumulator step after the pre-shift, and the pre-shift (section 2)."""
    bound = prove_product(terms, a, b, where)
    pre_shift = numerics.pre_shift_for(bound)
    return a.scale * b.scale * 2.0**pre_shift, pre_shift


@dataclass(frozen=True)
class MatMulPattern:
    """Shape-level product `alpha * a @ b`; an operand may be constant."""

    a: ir.Value
    b: ir.Value
    alpha: float
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A MatMul node, constant scales in front of and behind it, and the clamps that follow."""
    found = scaled_product(node, graph)
    activation = absorb_clamps(found.output, graph, channel_axis=None)
    nodes = (*found.nodes, *activation.nodes)
    inputs = tuple(v for v in (found.a, found.b) if graph.constant(v) is None)
    pattern = MatMulPattern(found.a, found.b, found.alpha, activation)
    terms = shape_of(found.a)[-1]
    macs = math.prod(shape_of(found.output)) * terms
    return Site("MatMul", nodes, inputs, (activation.output,), pattern, macs=macs)


@dataclass(frozen=True)
class ScaledProduct:
    """`alpha * a @ b` with the nodes that compute it; `output` is its value."""

    nodes: tuple[ir.Node, ...]
    a: ir.Value
    b: ir.Value
    alpha: float
    output: ir.Value


def scaled_product(node: ir.Node, graph: FloatGraph) -> ScaledProduct:
    """A MatMul with the scalar factors around it whose tensors need no scale of their own."""
    operands: list[ir.Value] = []
    before: list[ir.Node] = []
    alpha = 1.0
    for value in node.inputs:
        assert value is not None
        maker = value.producer()
        found = None if maker is None else scaling(maker, graph)
        if maker is None or found is None or not _only_here(value, node, graph):
            operands.append(value)
            continue
        before.append(maker)
        operands.append(found[0])
        alpha *= found[1]
    output, after = node.outputs[0], []
    while graph.hides(output):
        reader = graph.sole_consumer(output)
        found = None if reader is None else scaling(reader, graph)
        if reader is None or found is None:
            break
        after.append(reader)
        alpha *= found[1]
        output = reader.outputs[0]
    return ScaledProduct((*before, node, *after), operands[0], operands[1], alpha, output)


def scaling(node: ir.Node, graph: FloatGraph) -> tuple[ir.Value, float] | None:
    """Operand and factor of a Mul or Div by a finite scalar constant; None for any other node."""
    if node.op_type not in ("Mul", "Div") or node.domain not in ("", "ai.onnx"):
        return None
    x, constant_operand = node.inputs
    if node.op_type == "Mul" and graph.constant(x) is not None:
        x, constant_operand = constant_operand, x
    factor = graph.scalar(constant_operand)
    if x is None or factor is None or not math.isfinite(factor) or graph.constant(x) is not None:
        return None
    if x.shape is None or shape_of(x) != shape_of(node.outputs[0]):
        return None
    if node.op_type == "Mul":
        return x, factor
    return (x, 1.0 / factor) if factor != 0 else None


def _only_here(value: ir.Value, node: ir.Node, graph: FloatGraph) -> bool:
    return graph.hides(value) and graph.sole_consumer(value) is node


def bind(site: Site, builder: Builder) -> None:
    """The first operand's layout with the terms last; the second as it is stored."""
    pattern: MatMulPattern = site.pattern
    value = pattern.activation.output
    output = builder.encoding(value)
    given = [operand_of(builder, v) for v in (pattern.a, pattern.b)]
    vectors = [len(o.permutation) == 1 for o in given]
    matrices = [_matrix(builder, o, i) for i, o in enumerate(given)]
    rank = max(len(o.permutation) for o in matrices)
    a, b = (elementwise.lifted(builder, o, rank) for o in matrices)
    layout = (*(p for p in a.permutation if p != rank - 1), rank - 1)
    a = a if a.permutation == layout else builder.permuted(a, layout)
    terms = a.type.shape[-1]
    step, pre_shift = product_ratio(terms, a.type, b.type, site.name)
    m, shift = numerics.multiplier(pattern.alpha * step / output.scale, site.name)
    row_axis = layout.index(rank - 2)
    op = MatMul(
        row_axis=row_axis,
        b_axes=tuple(row_axis if p == rank - 2 else layout.index(p) for p in b.permutation),
        pre_shift=pre_shift,
        multiplier=m,
        shift=shift,
        **dict(zip(("lo", "hi"), clamp_pair(pattern.activation, output), strict=True)),
    )
    if not any(vectors):
        builder.add(op, [a, b], output, layout, value)
        return
    y = builder.add(op, [a, b], output, layout)
    _drop_axes(builder, y, vectors, value)


def operand_of(builder: Builder, value: ir.Value) -> Operand:
    """A stored operand; a constant one in the codes of the file, else s16: it has one scale."""
    array = builder.float_graph.constant(value)
    if array is None:
        return builder.operand(value)
    order = onnx_order(array.ndim)
    found = builder.float_graph.constants.get(value.name or "")
    if found is not None and found.scale.size == 1 and found.dtype in elementwise.ACTIVATION_TYPES:
        zero = int(found.zero_point.reshape(-1)[0])
        encoding = Encoding(found.dtype, float(found.scale.reshape(-1)[0]), zero)
        return builder.add(constant.Constant(found.codes), [], encoding, order)
    return constant.symmetric(builder, array, DType.S16, order)


def _matrix(builder: Builder, operand: Operand, position: int) -> Operand:
    """A vector as a matrix of one row (first operand) or of one column."""
    if len(operand.permutation) > 1:
        return operand
    shape = (1, *operand.type.shape) if position == 0 else (*operand.type.shape, 1)
    return builder.add(Reshape(shape), [operand], operand.type.encoding, (0, 1))


def _drop_axes(builder: Builder, y: Operand, vectors: Sequence[bool], value: ir.Value) -> None:
    """Without the axis that each vector operand lacked."""
    rank = len(y.permutation)
    gone = [
        axis for axis, is_vector in zip((rank - 2, rank - 1), vectors, strict=True) if is_vector
    ]
    kept = [axis for axis in range(rank) if axis not in gone]
    permutation: Permutation = tuple(kept.index(p) for p in y.permutation if p in kept)
    shape = tuple(n for n, p in zip(y.type.shape, y.permutation, strict=True) if p in kept)
    builder.add(Reshape(shape), [y], y.type.encoding, permutation, value)
