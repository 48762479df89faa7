"""What each instruction reads and writes, as boxes.

Everything that judges accesses (range, validity, races, the critical path) works from this
description, and the engines take their arrays through the same boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.graph import DType
from tilewright.machine.boxes import Box
from tilewright.machine.fault import Illegal
from tilewright.program import isa

TABLE16_ENTRIES = 513


@dataclass(frozen=True)
class Operands:
    """The boxes of one instruction by field name; engines read from the one and write the other."""

    reads: dict[str, Box]
    writes: dict[str, Box]


def operands(instruction: isa.Instruction) -> Operands:
    """The boxes of `instruction`.

    Raises:
        Illegal: an extent of zero, an unknown type, groups that do not divide channels.
    """
    reads, writes = _RULES[type(instruction)](instruction)
    for box in (*reads, *writes):
        if 0 in box.shape:
            raise Illegal(f"has an empty {box.field}")
    for box in writes:
        if any(n > 1 and s == 0 for n, s in zip(box.shape, box.strides, strict=True)):
            raise Illegal(f"writes {box.field} over itself: a stride is 0")
    return Operands({b.field: b for b in reads}, {b.field: b for b in writes})


Boxes = tuple[list[Box], list[Box]]


def element_size(dtype: int, allowed: Sequence[DType] = (DType.U8, DType.S8, DType.S16)) -> int:
    """Bytes of a type code.

    Raises:
        Illegal: the code is none of `allowed`.
    """
    if dtype not in allowed:
        raise Illegal(f"has the type code {dtype}")
    return DType(dtype).bytes


def _box(field: str, address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Box:
    return Box(field, False, address, tuple(shape), tuple(strides), size, size)


def _run(field: str, address: int, count: int, size: int, alignment: int | None = None) -> Box:
    """`count` elements side by side."""
    return Box(field, False, address, (count,), (size,), size, alignment or size)


def _records(field: str, address: int, count: int, record: type[Any]) -> Box:
    return _run(field, address, count, record.packed_size(), alignment=4)


def _dma(i: isa.Load | isa.Store) -> Boxes:
    ddr = Box("ddr", True, i.ddr, i.shape, (*i.ddr_strides, 1), 1)
    sram = Box("sram", False, i.sram, i.shape, (*i.sram_strides, 1), 1)
    return ([ddr], [sram]) if isinstance(i, isa.Load) else ([sram], [ddr])


def _matrix(i: isa.MatrixTile) -> Boxes:
    if i.groups == 0 or i.in_channels % i.groups or i.out_channels % i.groups:
        raise Illegal(f"splits {i.in_channels} and {i.out_channels} channels in {i.groups} groups")
    if 0 in (*i.kernel, *i.stride, *i.dilation):
        raise Illegal("has a kernel, stride or dilation of 0")
    isize, osize = element_size(i.input_type), element_size(i.output_type)
    weights = i.out_channels * i.kernel[0] * i.kernel[1] * (i.in_channels // i.groups)
    inside = (i.in_rows, i.in_columns, i.in_channels)
    reads = [
        _box("input", i.input, inside, (*i.in_strides, isize), isize),
        _run("weights", i.weights, weights, element_size(i.weight_type)),
        _records("channels", i.channels, i.out_channels, isa.ChannelRecord),
    ]
    if i.table:
        reads.append(_run("table", i.table, TABLE16_ENTRIES, 2))
    out = (i.out_rows, i.out_columns, i.out_channels)
    return reads, [_box("output", i.output, out, (*i.out_strides, osize), osize)]


def _matrix_product(i: isa.MatrixProduct) -> Boxes:
    sa, sb, sy = (element_size(t) for t in i.types)
    *batch, m, k, n = i.shape
    reads = [
        _box("a", i.a, (*batch, m, k), i.a_strides, sa),
        _box("b", i.b, (*batch, k, n), i.b_strides, sb),
    ]
    return reads, [_box("y", i.y, (*batch, m, n), i.y_strides, sy)]


def _attend(i: isa.Attend) -> Boxes:
    sq, sk, sv, sm = (element_size(t) for t in i.types[:4])
    m, n, d, e = i.shape
    reads = [
        _box("q", i.q, (m, d), i.q_strides, sq),
        _box("k", i.k, (n, d), i.k_strides, sk),
        _box("v", i.v, (n, e), i.v_strides, sv),
    ]
    if i.mask:
        reads.append(_box("mask", i.mask, (m, n), i.mask_strides, sm))
    if i.bias:
        size = element_size(i.types[4], (DType.S16, DType.S32))
        reads.append(_box("bias", i.bias, (m, n), i.bias_strides, size))
    return reads, [
        _run("scratch", i.scratch, i.block * n, 2),
        _box("y", i.y, (m, e), i.y_strides, element_size(i.types[5])),
    ]


def _binary(i: isa.Add | isa.Multiply) -> Boxes:
    sa, sb, sy = (element_size(t) for t in i.types)
    reads = [
        _box("a", i.a, i.shape, i.a_strides, sa),
        _box("b", i.b, i.shape, i.b_strides, sb),
    ]
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


def _add_constant(i: isa.AddConstant) -> Boxes:
    sa, sy = (element_size(t) for t in i.types)
    reads = [_box("a", i.a, i.shape, i.a_strides, sa), _box("c", i.c, i.shape, i.c_strides, 8)]
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


def _lookup8(i: isa.Lookup8) -> Boxes:
    sx = element_size(i.types[0], (DType.U8, DType.S8))
    sy = element_size(i.types[1])
    reads = [_box("x", i.x, i.shape, i.x_strides, sx), _run("table", i.table, 256, sy)]
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


def _lookup16(i: isa.Lookup16) -> Boxes:
    sy = element_size(i.output_type)
    reads = [_box("x", i.x, i.shape, i.x_strides, 2), _run("table", i.table, TABLE16_ENTRIES, 2)]
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


def _unary(i: isa.Rescale | isa.ParametricRelu) -> Boxes:
    sx, sy = (element_size(t) for t in i.types)
    reads = [_box("x", i.x, i.shape, i.x_strides, sx)]
    if isinstance(i, isa.ParametricRelu):
        reads.append(_records("channels", i.channels, i.shape[3], isa.ChannelRecord))
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


def _fill(i: isa.Fill) -> Boxes:
    size = element_size(i.type, tuple(DType))
    return [], [_box("y", i.y, i.shape, i.y_strides, size)]


def _pool(i: isa.MaxPool | isa.AveragePool) -> Boxes:
    if 0 in (*i.kernel, *i.stride, *i.dilation):
        raise Illegal("has a window, stride or dilation of 0")
    boxes = _image(i)
    if isinstance(i, isa.AveragePool):
        boxes[0].append(_records("counts", i.counts, i.count_entries, isa.CountRecord))
    return boxes


def _image(i: isa.MaxPool | isa.AveragePool | isa.Resize) -> Boxes:
    sx, sy = (element_size(t) for t in i.types)
    inside = (i.in_rows, i.in_columns, i.channels)
    outside = (i.out_rows, i.out_columns, i.channels)
    return (
        [_box("input", i.input, inside, (*i.in_strides, sx), sx)],
        [_box("output", i.output, outside, (*i.out_strides, sy), sy)],
    )


def _resize(i: isa.Resize) -> Boxes:
    reads, writes = _image(i)
    reads.append(_records("rows", i.rows, i.out_rows * i.taps, isa.TapRecord))
    reads.append(_records("columns", i.columns, i.out_columns * i.taps, isa.TapRecord))
    return reads, writes


def _reduce(i: isa.Reduce) -> Boxes:
    sx, sy = (element_size(t) for t in i.types)
    out = (i.shape[0], i.shape[3])
    return [_box("x", i.x, i.shape, i.x_strides, sx)], [_box("y", i.y, out, i.y_strides, sy)]


def _softmax(i: isa.Softmax) -> Boxes:
    sx, sy = (element_size(t) for t in i.types)
    return (
        [_box("x", i.x, i.shape, i.x_strides, sx)],
        [_box("y", i.y, i.shape, i.y_strides, sy)],
    )


def _normalize(i: isa.NormalizeTile) -> Boxes:
    sx, sy = (element_size(t) for t in i.types)
    record = isa.AffineRecord.packed_size()
    reads = [
        _box("x", i.x, i.shape, i.x_strides, sx),
        Box("gains", False, i.gains, i.shape, i.gain_strides, record, 4),
    ]
    return reads, [_box("y", i.y, i.shape, i.y_strides, sy)]


_RULES: dict[type[isa.Instruction], Callable[[Any], Boxes]] = {
    isa.Load: _dma,
    isa.Store: _dma,
    isa.Convolve: _matrix,
    isa.Deconvolve: _matrix,
    isa.MatrixProduct: _matrix_product,
    isa.Attend: _attend,
    isa.Add: _binary,
    isa.AddConstant: _add_constant,
    isa.Multiply: _binary,
    isa.Lookup8: _lookup8,
    isa.Lookup16: _lookup16,
    isa.ParametricRelu: _unary,
    isa.Rescale: _unary,
    isa.Fill: _fill,
    isa.MaxPool: _pool,
    isa.AveragePool: _pool,
    isa.Reduce: _reduce,
    isa.Softmax: _softmax,
    isa.Resize: _resize,
    isa.Normalize: _normalize,
    isa.NormalizeRms: _normalize,
    isa.NormalizeL2: _normalize,
}
