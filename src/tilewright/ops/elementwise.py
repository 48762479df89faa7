"""What operators that work element by element share: broadcasting, boxes, aligned operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType
from tilewright.ops.builder import Builder, Operand, Permutation
from tilewright.ops.copying import foldable_boxes
from tilewright.ops.protocol import Region, Span, View
from tilewright.ops.reshape import Reshape

ACTIVATION_TYPES = (DType.U8, DType.S8, DType.S16)


def require_activations(inputs: Sequence[TensorType], where: str) -> None:
    """Operands must be u8, s8 or s16, the last without a zero point (section 1).

    Raises:
        QuantizationError: naming the operator and the type.
    """
    for x in inputs:
        if x.dtype not in ACTIVATION_TYPES:
            raise QuantizationError(f"{where}: an operand of type {x.dtype.text} has no arithmetic")
        if x.dtype is DType.S16 and x.zero_point != 0:
            raise QuantizationError(
                f"{where}: a 16-bit operand has zero point {x.zero_point}",
                fix="quantize 16-bit tensors symmetrically",
            )


def broadcast_shape(shapes: Sequence[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """The shape of the result; QuantizationError where the shapes do not fit."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise QuantizationError(f"{where}: shapes {listed} do not broadcast") from None


def broadcast_needs(region: Region, shapes: Sequence[tuple[int, ...]]) -> tuple[Region, ...]:
    """The box of each operand that `region` of the result reads."""
    return tuple(
        tuple(Span(0, 1) if n == 1 else span for span, n in zip(region, shape, strict=True))
        for shape in shapes
    )


def broadcast_strides(view: View) -> tuple[int, ...]:
    """Strides of an operand over the result's axes: 0 where it repeats."""
    return tuple(
        0 if n == 1 else stride for n, stride in zip(view.type.shape, view.strides, strict=True)
    )


def word_strides(array: Array) -> tuple[int, ...]:
    """Byte strides of `array` without gaps."""
    strides = [array.itemsize]
    for n in reversed(array.shape[1:]):
        strides.insert(0, strides[0] * n)
    return tuple(strides)


class Box(NamedTuple):
    """A strided box of several operands: byte offset and strides of each."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]


def boxes(shape: Sequence[int], strides: Sequence[Sequence[int]], length: int) -> Iterator[Box]:
    """Cover a box of any rank with boxes of `length` axes."""
    for extents, folded, offsets in foldable_boxes(shape, strides, length):
        yield Box(extents, tuple(folded), offsets)


def lifted(builder: Builder, operand: Operand, rank: int) -> Operand:
    """The operand with axes of extent 1 put in front of its ONNX shape, up to `rank`."""
    more = rank - len(operand.permutation)
    if more == 0:
        return operand
    shape = (1,) * more + operand.type.shape
    permutation = (*range(more), *(p + more for p in operand.permutation))
    return builder.add(Reshape(shape), [operand], operand.type.encoding, permutation)


def aligned(builder: Builder, values: Sequence[ir.Value], rank: int) -> list[Operand]:
    """The operands lifted to `rank`, all in the layout of the largest of them."""
    operands = [lifted(builder, builder.operand(v), rank) for v in values]
    layout = max(operands, key=lambda operand: operand.type.elements).permutation
    return [o if o.permutation == layout else builder.permuted(o, layout) for o in operands]


def stored_constant(array: Array, permutation: Permutation) -> Array:
    """A constant that broadcasts against a tensor stored in this layout."""
    rank = len(permutation)
    return np.ascontiguousarray(
        array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(permutation)
    )


def varying_axes(array: Array, rank: int) -> tuple[int, ...]:
    """The axes, of a result of `rank` axes, along which a constant differs."""
    shape = (1,) * (rank - array.ndim) + array.shape
    return tuple(axis for axis, n in enumerate(shape) if n > 1)


def channel_layout(rank: int, axis: int) -> Permutation:
    """Stored order with ONNX axis `axis` last and the others as they were."""
    return (*(a for a in range(rank) if a != axis), axis)
