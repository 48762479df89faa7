"""Plain meanings of the element-wise and product instructions, for tile tests.

One element at a time where that is the clearest; nothing of the operators' `reference` is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph import DType
from tilewright.program import isa

Grid = Callable[..., Any]


def rounded(x: Any, m: Any, shift: Any) -> Any:
    """R24 with a signed multiplier."""
    m, shift = np.asarray(m, np.int64), np.asarray(shift, np.int64)
    y = (x * abs(m) + (np.int64(1) << (shift - 1))) >> shift
    return np.where(m < 0, -y, y)


def interpolated(memory: Any, table: int, q: Any, m: int, shift: int) -> Any:
    place = q + 32768
    left = memory.read(table + 2 * (place // 128), DType.S16)
    right = memory.read(table + 2 * (place // 128 + 1), DType.S16)
    return rounded(128 * left + (right - left) * (place % 128), m, shift)


def execute(i: Any, memory: Any, grid: Grid) -> None:
    """Run one instruction on `memory`."""
    match i:
        case isa.MatrixTile():
            _product(i, memory, grid)
            return
        case isa.Softmax():
            _softmax(i, memory, grid)
            return
        case isa.MatrixProduct():
            _matrix_product(i, memory, grid)
            return
        case isa.NormalizeTile():
            _normalize(i, memory, grid)
            return
        case isa.Attend():
            _attend(i, memory, grid)
            return
    y_at = grid(i.y, i.shape, i.y_strides)
    match i:
        case isa.Add():
            a = memory.read(grid(i.a, i.shape, i.a_strides), i.types[0]) - i.zeros[0]
            b = memory.read(grid(i.b, i.shape, i.b_strides), i.types[1]) - i.zeros[1]
            total = (i.ma * a + i.mb * b + 2 ** (i.shift - 1)) >> i.shift
            memory.write(y_at, np.clip(total + i.zeros[2], *i.clamp), i.types[2])
        case isa.AddConstant():
            a = memory.read(grid(i.a, i.shape, i.a_strides), i.types[0]) - i.zeros[0]
            c = memory.read(grid(i.c, i.shape, i.c_strides), DType.S64)
            total = (i.ma * a + c + 2 ** (i.shift - 1)) >> i.shift
            memory.write(y_at, np.clip(total + i.zeros[1], *i.clamp), i.types[1])
        case isa.Multiply():
            a = memory.read(grid(i.a, i.shape, i.a_strides), i.types[0]) - i.zeros[0]
            b = memory.read(grid(i.b, i.shape, i.b_strides), i.types[1]) - i.zeros[1]
            r = rounded(a * b, i.multiplier, i.shift)
            memory.write(y_at, np.clip(r + i.zeros[2], *i.clamp), i.types[2])
        case isa.Lookup8():
            x = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0])
            place = x + (128 if i.types[0] == DType.S8 else 0)
            entries = memory.read(i.table + place * DType(i.types[1]).bytes, i.types[1])
            memory.write(y_at, entries, i.types[1])
        case isa.Lookup16():
            x = memory.read(grid(i.x, i.shape, i.x_strides), DType.S16)
            r = interpolated(memory, i.table, x, i.multiplier, i.shift)
            memory.write(y_at, np.clip(r + i.output_zero, *i.clamp), i.output_type)
        case isa.ParametricRelu():
            d = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0]) - i.zeros[0]
            channels = memory.records(i.channels, i.shape[3], isa.ChannelRecord)
            below = rounded(d, channels["multiplier"], channels["shift"])
            r = np.where(d >= 0, rounded(d, i.multiplier, i.shift), below)
            memory.write(y_at, np.clip(r + i.zeros[1], *i.clamp), i.types[1])
        case _:
            raise AssertionError(i)


def _exponentials(row: Any, i: Any) -> list[int]:
    table = [round(2.0 ** (23 - k / 256)) for k in range(257)]
    found = []
    for q in row:
        t = int(rounded(int(max(row)) - int(q), i.exponent_multiplier, i.exponent_shift))
        n, f = divmod(t, 65536)
        k, g = divmod(f, 256)
        p = table[k] - (((table[k] - table[k + 1]) * g + 128) >> 8)
        found.append(0 if n > 31 else (p + ((1 << n) >> 1)) >> n)
    return found


def _attend(i: Any, memory: Any, grid: Grid) -> None:
    m, n, d, e = i.shape
    q = memory.read(grid(i.q, (m, d), i.q_strides), i.types[0]) - i.zeros[0]
    k = memory.read(grid(i.k, (n, d), i.k_strides), i.types[1]) - i.zeros[1]
    v = memory.read(grid(i.v, (n, e), i.v_strides), i.types[2]) - i.zeros[2]
    acc = q @ k.T
    if i.pre_shift:
        acc = (acc + (1 << (i.pre_shift - 1))) >> i.pre_shift
    score = rounded(acc, i.score_multiplier, i.score_shift)
    if i.bias:
        score = score + memory.read(grid(i.bias, (m, n), i.bias_strides), i.types[4])
    if i.mask:
        mask = memory.read(grid(i.mask, (m, n), i.mask_strides), i.types[3]) - i.zeros[3]
        score = score + rounded(mask, i.mask_multiplier, i.mask_shift)
    score = np.clip(score, -32767, 32767)
    assert i.scratch and 0 < i.block <= m
    y = np.empty((m, e), np.int64)
    for row in range(m):
        p = np.array([(255 * x + (1 << 22)) >> 23 for x in _exponentials(score[row], i)])
        w = (p @ v * (2**39 // int(p.sum())) + (1 << 22)) >> 23
        y[row] = np.clip(rounded(w, i.multiplier, i.shift) + i.zeros[4], *DType(i.types[5]).range)
    memory.write(grid(i.y, (m, e), i.y_strides), y, i.types[5])


def _softmax(i: Any, memory: Any, grid: Grid) -> None:
    x = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0])
    y = np.empty(i.shape, np.int64)
    lo, hi = DType(i.types[1]).range
    for o in itertools.product(range(i.shape[0]), range(i.shape[1])):
        e = _exponentials(x[o], i)
        r = 2**53 // sum(e)
        p = np.array([(v * r + 2**28) >> 29 for v in e])
        y[o] = np.clip(rounded(p, i.multiplier, i.shift) + i.output_zero, lo, hi)
    memory.write(grid(i.y, i.shape, i.y_strides), y, i.types[1])


def _matrix_product(i: Any, memory: Any, grid: Grid) -> None:
    *batch, m, k, n = i.shape
    a = memory.read(grid(i.a, (*batch, m, k), i.a_strides), i.types[0]) - i.zeros[0]
    b = memory.read(grid(i.b, (*batch, k, n), i.b_strides), i.types[1]) - i.zeros[1]
    acc = np.einsum("xymk,xykn->xymn", a, b)
    if i.pre_shift:
        acc = (acc + (1 << (i.pre_shift - 1))) >> i.pre_shift
    y = np.clip(rounded(acc, i.multiplier, i.shift) + i.zeros[2], *i.clamp)
    memory.write(grid(i.y, (*batch, m, n), i.y_strides), y, i.types[2])


def _normalize(i: Any, memory: Any, grid: Grid) -> None:
    x = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0]) - i.zeros[0]
    record = grid(i.gains, i.shape, i.gain_strides)
    gain, offset = memory.read(record, DType.S32), memory.read(record + 4, DType.S64)
    y = np.empty(i.shape, np.int64)
    bits = 24 if isinstance(i, isa.NormalizeL2) else 16
    for o in itertools.product(range(i.shape[0]), range(i.shape[1])):
        group = [int(v) for v in x[o].ravel()]
        unit = 1 if isinstance(i, isa.NormalizeL2) else len(group)
        total = sum(group) if isinstance(i, isa.Normalize) else 0
        w = unit * sum(v * v for v in group) - total**2 + i.epsilon
        k = next(k for k in range(0, 64, 2) if w << k >= 2**60 or w == 0)
        r = 2**61 // math.isqrt(w << k) if w else 0
        h = 61 - bits - k // 2
        n = np.array([((unit * v - total) * r + (1 << (h - 1))) >> h for v in group])
        n = n.reshape(i.shape[2:])
        y[o] = ((n * gain[o] + offset[o] + (1 << (i.shift - 1))) >> i.shift) + i.zeros[1]
    memory.write(grid(i.y, i.shape, i.y_strides), np.clip(y, *i.clamp), i.types[1])


def _product(i: Any, memory: Any, grid: Grid) -> None:
    size, out_size = DType(i.input_type).bytes, DType(i.output_type).bytes
    width, per_group = i.in_channels // i.groups, i.out_channels // i.groups
    shape = (i.out_channels, *i.kernel, width)
    count = int(np.prod(shape))
    weights = memory.read(
        i.weights + np.arange(count) * DType(i.weight_type).bytes, i.weight_type
    ).reshape(shape)
    weights = weights - i.weight_zero
    records = memory.records(i.channels, i.out_channels, isa.ChannelRecord)
    bias = (records["bias_high"].astype(np.int64) << 32) + records["bias_low"]
    for r, c in itertools.product(range(i.out_rows), range(i.out_columns)):
        acc = bias.copy()
        for u, v in itertools.product(range(i.kernel[0]), range(i.kernel[1])):
            place = _tap(i, r, c, u, v)
            if place is None:
                continue
            base = i.input + place[0] * i.in_strides[0] + place[1] * i.in_strides[1]
            x = memory.read(grid(base, [i.in_channels], [size]), i.input_type) - i.input_zero
            groups = np.repeat(x.reshape(i.groups, width), per_group, axis=0)
            acc += (groups * weights[:, u, v]).sum(axis=1)
        if i.pre_shift:
            acc = (acc + (1 << (i.pre_shift - 1))) >> i.pre_shift
        y = rounded(acc, records["multiplier"], records["shift"])
        if i.table:
            y = np.clip(y, -32767, 32767)
            y = interpolated(memory, i.table, y, i.table_multiplier, i.table_shift)
            y = np.clip(y + i.output_zero, *DType(i.output_type).range)
        else:
            y = np.clip(y + i.output_zero, records["lo"], records["hi"])
        base = i.output + r * i.out_strides[0] + c * i.out_strides[1]
        memory.write(grid(base, [i.out_channels], [out_size]), y, i.output_type)


def _tap(i: Any, r: int, c: int, u: int, v: int) -> tuple[int, int] | None:
    """Input row and column that output (r, c) reads through tap (u, v)."""
    place = []
    for k, (at, tap, held) in enumerate(((r, u, i.in_rows), (c, v, i.in_columns))):
        if isinstance(i, isa.Deconvolve):
            index, left = divmod(at + i.pad[k] - tap * i.dilation[k], i.stride[k])
            if left:
                return None
        else:
            index = at * i.stride[k] - i.pad[k] + tap * i.dilation[k]
        if not 0 <= index < held:
            return None
        place.append(index)
    return place[0], place[1]
