"""MTX: convolution, transposed convolution, matrix product, and their epilogue.

Products are exact in floating point: partial sums are integers that stay below 2**53 (2**24 where
float32 serves), whatever order BLAS adds them in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.graph import DType
from tilewright.machine.arithmetic import Wide, interpolated, rescaled, stored
from tilewright.machine.memory import GroupMemory
from tilewright.machine.operands import Operands
from tilewright.program.isa import ChannelRecord, Convolve, Deconvolve, MatrixProduct, MatrixTile

Floats = npt.NDArray[Any]

CHANNELS = ChannelRecord.numpy_dtype()
PATCH_ELEMENTS = 1 << 21
"""How much of the unrolled input is held at once."""


def convolve(i: Convolve, boxes: Operands, memory: GroupMemory) -> None:
    """Convolution of one tile; see `isa.Convolve`."""
    dtype = _float_type(i)
    weights = _weights(i, boxes, memory, dtype)
    canvas = _canvas(i, boxes, memory, dtype)
    output = memory.view(boxes.writes["output"], i.output_type)
    step = max(1, PATCH_ELEMENTS // max(1, i.out_columns * i.in_channels * weights.shape[1]))
    for first in range(0, i.out_rows, step):
        last = min(first + step, i.out_rows)
        acc = _accumulate(i, canvas, weights, first, last)
        output[first:last] = _epilogue(i, boxes, memory, acc)


def deconvolve(i: Deconvolve, boxes: Operands, memory: GroupMemory) -> None:
    """Transposed convolution of one tile; see `isa.Deconvolve`."""
    weights = _weights(i, boxes, memory, np.float64)
    codes = memory.view(boxes.reads["input"], i.input_type)
    x = codes.astype(np.float64) - i.input_zero
    taps = [(u, v) for u in range(i.kernel[0]) for v in range(i.kernel[1])]
    width, each = i.in_channels // i.groups, i.out_channels // i.groups
    spread = np.zeros(
        (_reach(i, 0, i.in_rows), _reach(i, 1, i.in_columns), i.out_channels), np.float64
    )
    for tap, (u, v) in enumerate(taps):
        rows = _places(i, 0, u, i.in_rows)
        columns = _places(i, 1, v, i.in_columns)
        for g in range(i.groups):
            out = slice(g * each, (g + 1) * each)
            product = x[..., g * width : (g + 1) * width] @ weights[out, tap].T
            spread[rows, columns, out] += product
    acc = np.zeros((i.out_rows, i.out_columns, i.out_channels), np.float64)
    _paste(acc, spread, -i.pad[0], -i.pad[1])
    output = memory.view(boxes.writes["output"], i.output_type)
    output[...] = _epilogue(i, boxes, memory, acc)


def matrix_product(i: MatrixProduct, boxes: Operands, memory: GroupMemory) -> None:
    """Batched product of two run-time operands; see `isa.MatrixProduct`."""
    terms = i.shape[3]
    wide = DType.S16 in i.types[:2] or terms * 255 * 255 >= 2**24
    dtype: Any = np.float64 if wide else np.float32
    a: Floats = memory.view(boxes.reads["a"], i.types[0]).astype(dtype, order="C")
    b: Floats = memory.view(boxes.reads["b"], i.types[1]).astype(dtype, order="C")
    a -= i.zeros[0]
    b -= i.zeros[1]
    total: Wide = np.matmul(a, b).astype(np.int64)
    scaled = rescaled(total, i.multiplier, i.shift, i.pre_shift)
    output = memory.view(boxes.writes["y"], i.types[2])
    output[...] = stored(scaled, i.zeros[2], i.clamp, i.types[2])


def _float_type(i: MatrixTile) -> type[np.floating[Any]]:
    """float32 where no sum of products can reach 2**24."""
    per_output = i.kernel[0] * i.kernel[1] * (i.in_channels // i.groups)
    wide = DType.S16 in (i.input_type, i.weight_type)
    return np.float64 if wide or per_output * 255 * 255 >= 2**24 else np.float32


def _weights(i: MatrixTile, boxes: Operands, memory: GroupMemory, dtype: Any) -> Floats:
    """[out_channels, taps, in_channels/groups], zero point removed."""
    codes = memory.view(boxes.reads["weights"], i.weight_type)
    shape = (i.out_channels, i.kernel[0] * i.kernel[1], i.in_channels // i.groups)
    values: Floats = codes.reshape(shape).astype(dtype)
    values -= i.weight_zero
    return values


def _reach(i: MatrixTile, axis: int, steps: int) -> int:
    """Rows or columns that `steps` positions of the kernel cover."""
    return (steps - 1) * i.stride[axis] + (i.kernel[axis] - 1) * i.dilation[axis] + 1


def _places(i: MatrixTile, axis: int, tap: int, steps: int) -> slice:
    """Where the positions of one tap fall on that axis."""
    first = tap * i.dilation[axis]
    return slice(first, first + (steps - 1) * i.stride[axis] + 1, i.stride[axis])


def _canvas(i: Convolve, boxes: Operands, memory: GroupMemory, dtype: Any) -> Floats:
    """All that the tile reads, padding as zeros, zero point removed."""
    codes = memory.view(boxes.reads["input"], i.input_type)
    shape = (_reach(i, 0, i.out_rows), _reach(i, 1, i.out_columns), i.in_channels)
    x: Floats = codes.astype(dtype)
    x -= i.input_zero
    if i.pad == (0, 0) and x.shape == shape:
        return x
    canvas = np.zeros(shape, dtype)
    _paste(canvas, x, *i.pad)
    return canvas


def _paste(target: Floats, source: Floats, row: int, column: int) -> None:
    """Copy what falls inside, source (0, 0) lying at target (row, column)."""
    spans = []
    for at, have, room in zip((row, column), source.shape, target.shape, strict=False):
        start, stop = max(0, at), min(room, at + have)
        if start >= stop:
            return
        spans.append((slice(start, stop), slice(start - at, stop - at)))
    (to_rows, from_rows), (to_columns, from_columns) = spans
    target[to_rows, to_columns] = source[from_rows, from_columns]


def _accumulate(i: Convolve, canvas: Floats, weights: Floats, first: int, last: int) -> Floats:
    """Sums of products of output rows [first, last)."""
    rows = last - first
    part = canvas[first * i.stride[0] :]
    if weights.shape[2] == 1 and i.groups > 1:
        return _depthwise(i, part, weights, rows)
    high, wide, unit = part.strides
    patches = np.lib.stride_tricks.as_strided(
        part,
        (rows, i.out_columns, i.kernel[0], i.kernel[1], i.in_channels),
        (
            high * i.stride[0], wide * i.stride[1],
            high * i.dilation[0], wide * i.dilation[1], unit,
        ),
        writeable=False,
    )  # fmt: skip
    width, each = i.in_channels // i.groups, i.out_channels // i.groups
    acc = np.empty((rows * i.out_columns, i.out_channels), canvas.dtype)
    for g in range(i.groups):
        unrolled = patches[..., g * width : (g + 1) * width].reshape(len(acc), -1)
        kernel = weights[g * each : (g + 1) * each].reshape(each, -1)
        acc[:, g * each : (g + 1) * each] = unrolled @ kernel.T
    return acc.reshape(rows, i.out_columns, i.out_channels)


def _depthwise(i: Convolve, part: Floats, weights: Floats, rows: int) -> Floats:
    each = i.out_channels // i.groups
    acc = np.zeros((rows, i.out_columns, i.out_channels), part.dtype)
    product = np.empty_like(acc)
    for u in range(i.kernel[0]):
        for v in range(i.kernel[1]):
            patch = part[_places(i, 0, u, rows), _places(i, 1, v, i.out_columns)]
            if each > 1:
                patch = np.repeat(patch, each, axis=2)
            np.multiply(patch, weights[:, u * i.kernel[1] + v, 0], out=product)
            acc += product
    return acc


def _epilogue(i: MatrixTile, boxes: Operands, memory: GroupMemory, acc: Floats) -> Any:
    """Bias, R24 and clamp of each channel, or a table behind s16; codes of the output."""
    channels = memory.view(boxes.reads["channels"], CHANNELS)
    bias = channels["bias_high"].astype(np.int64) * 2**32 + channels["bias_low"]
    total: Wide = acc.astype(np.int64)
    total += bias
    scaled = rescaled(total, channels["multiplier"], channels["shift"], i.pre_shift)
    if not i.table:
        clamp = channels["lo"], channels["hi"]
        return stored(scaled, i.output_zero, clamp, i.output_type)
    inner = np.clip(scaled, *DType.S16.range)
    table = memory.view(boxes.reads["table"], DType.S16)
    value = rescaled(interpolated(inner, table), i.table_multiplier, i.table_shift)
    return stored(value, i.output_zero, DType(i.output_type).range, i.output_type)
