"""Mean and sum over any axes: ReduceMean, ReduceSum, GlobalAveragePool.

y = sat(R24(sum(q - zx); sx/(sy*count)) + zy), count = 1 for a sum
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.pattern import FloatGraph, Refusal, Site, attribute_int, shape_of
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Span,
    Split,
    Tile,
    Work,
    region_elements,
    region_shape,
    strided_axes,
)
from tilewright.ops.reshape import Reshape
from tilewright.program import isa
from tilewright.program.isa import Instruction

ONNX = ("ReduceMean", "ReduceSum", "GlobalAveragePool")
KINDS = ("Reduce",)
TYPES = "u8, s8, s16"
LIMITS = "constant axes, any of them"


@dataclass(frozen=True, eq=False)
class Reduce(NpuOperator):
    """Scaled sum over neighbouring stored axes, which stay with extent 1."""

    CODE = 22
    axes: tuple[int, int] = attribute("first stored axis that is summed, end of them", count=2)
    pre_shift: int = attribute("pre-shift of R24")
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")
    clamp: tuple[int, int] = attribute("lo and hi", count=2)

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        first, end = self.axes
        sum_bound(x, math.prod(x.shape[first:end]), where)
        return ((*x.shape[:first], *(1,) * (end - first), *x.shape[end:]),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        axes = tuple(range(*self.axes))
        acc = (x.astype(np.int64) - xt.zero_point).sum(axis=axes, keepdims=True)
        r = numerics.r24(acc, self.multiplier, self.shift, self.pre_shift)
        return [numerics.saturate(r + yt.zero_point, *self.clamp).astype(yt.dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        first, end = self.axes
        summed = (Span(0, n) for n in inputs[0].shape[first:end])
        return ((*region[:first], *summed, *region[end:]),)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return tuple(
            Split(axis) for axis in range(len(output.shape)) if axis not in range(*self.axes)
        )

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        count = math.prod(inputs[0].shape[slice(*self.axes)])
        return Work(vector_elements=region_elements(region) * count)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        (need,) = self.needs(tile.region, [view.type], tile.output.type)
        shape = region_shape(need)
        first, end = self.axes
        x, y = view.strides, tile.output.strides
        before = _folded(shape[:first], x[:first], y[:first])
        after = _folded(shape[end:], x[end:], y[end:])
        summed, (x_summed,) = strided_axes(shape[first:end], [x[first:end]], 2)
        # The instruction takes one axis before the sum and one after it; others are walked here.
        (o, xo, yo), (i, xi, yi) = before[-1], after[-1]
        outer = before[:-1] + after[:-1]
        return [
            isa.Reduce(
                x=view.origin(need) + sum(k * a[1] for k, a in zip(at, outer, strict=True)),
                y=tile.output.origin(tile.region)
                + sum(k * a[2] for k, a in zip(at, outer, strict=True)),
                shape=(o, *summed, i),
                x_strides=(xo, *x_summed, xi),
                y_strides=(yo, yi),
                types=(view.type.dtype, tile.output.type.dtype),
                zeros=(view.type.zero_point, tile.output.type.zero_point),
                pre_shift=self.pre_shift,
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=self.clamp,
            )
            for at in itertools.product(*(range(n) for n, _, _ in outer))
        ]


OPERATORS = (Reduce,)


def _folded(shape: Sequence[int], x: Sequence[int], y: Sequence[int]) -> list[tuple[int, int, int]]:
    """(extent, x stride, y stride) of the axes that remain after merging; at least one."""
    extents, (xs, ys) = strided_axes(shape, [x, y], len(shape) + 1)
    axes = [a for a in zip(extents, xs, ys, strict=True) if a[0] != 1]
    return axes or [(1, 0, 0)]


def sum_bound(x: TensorType, count: int, where: str) -> int:
    """The largest |sum of (q - zx)| over `count` elements.

    Raises:
        QuantizationError: R24 does not take it (8-bit), or it leaves 48 bits (16-bit).
    """
    bound = count * x.reach
    if bound >= (numerics.R24_LIMIT if x.dtype.is_8_bit else 2**47):
        raise QuantizationError(f"{where}: a sum of {count} elements is too large to compute")
    return bound


@dataclass(frozen=True)
class ReducePattern:
    """A mean or sum over ONNX axes."""

    axes: tuple[int, ...]
    keeps: bool
    mean: bool
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A mean or sum over constant axes; a Relu or Clip fuses behind it."""
    x = node.inputs[0]
    assert x is not None
    rank = len(shape_of(x))
    if node.op_type == "GlobalAveragePool":
        axes: tuple[int, ...] = tuple(range(2, rank))
    else:
        operand = node.inputs[1] if len(node.inputs) > 1 else None
        array = graph.constant(operand)
        if operand is not None and array is None:
            return Refusal("its axes are computed at run time")
        axes = () if array is None else tuple(int(a) % rank for a in array.reshape(-1))
        if not axes:
            if attribute_int(node, "noop_with_empty_axes") == 1:
                return Refusal("it has no axes to reduce")
            axes = tuple(range(rank))
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    pattern = ReducePattern(
        axes,
        node.op_type == "GlobalAveragePool" or attribute_int(node, "keepdims", 1) == 1,
        node.op_type != "ReduceSum",
        activation,
    )
    return Site("Reduce", (node, *activation.nodes), (x,), (activation.output,), pattern)


def bind(site: Site, builder: Builder) -> None:
    """Reduce in the input's layout where its summed axes are neighbours there."""
    pattern: ReducePattern = site.pattern
    value = site.outputs[0]
    encoding = builder.encoding(value)
    x = _with_neighbours(builder, builder.operand(site.inputs[0]), pattern.axes)
    axes = _stored_range(x, pattern.axes)
    count = math.prod(x.type.shape[slice(*axes)])
    bound = sum_bound(x.type, count, site.name)
    pre_shift = 0 if x.type.dtype.is_8_bit else numerics.pre_shift_for(bound)
    ratio = x.type.scale / (encoding.scale * (count if pattern.mean else 1))
    m, shift = numerics.multiplier(ratio * 2.0**pre_shift, site.name)
    op = Reduce(axes, pre_shift, m, shift, clamp_pair(pattern.activation, encoding))
    if pattern.keeps:
        builder.add(op, [x], encoding, x.permutation, value)
        return
    y = builder.add(op, [x], encoding, x.permutation)
    kept = [a for a in x.permutation if a not in pattern.axes]
    shape = tuple(y.type.shape[x.axis(a)] for a in kept)
    ranks = {axis: i for i, axis in enumerate(sorted(kept))}
    builder.add(Reshape(shape), [y], encoding, tuple(ranks[a] for a in kept), value)


def _stored_range(x: Operand, axes: Sequence[int]) -> tuple[int, int]:
    """First and end of the stored axes that `axes` (ONNX) span; those of extent 1 do not matter."""
    at = sorted(x.axis(a) for a in axes)
    long = [a for a in at if x.type.shape[a] != 1] or at[:1]
    return long[0], long[-1] + 1


def _with_neighbours(builder: Builder, x: Operand, axes: Sequence[int]) -> Operand:
    """`x` with nothing but summed axes between its first and its last summed axis."""
    first, end = _stored_range(x, axes)
    between = x.permutation[first:end]
    if all(a in axes or x.type.shape[x.axis(a)] == 1 for a in between):
        return x
    kept = tuple(a for a in x.permutation if a not in axes)
    summed = tuple(a for a in x.permutation if a in axes)
    return builder.permuted(x, kept + summed)
