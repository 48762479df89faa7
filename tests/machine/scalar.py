"""Every instruction once more, one element at a time, in Python integers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from tilewright.graph import DType
from tilewright.program import isa


class Ram:
    """SRAM as a bytearray with typed access."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def get(self, address: int, dtype: int) -> int:
        size = DType(dtype).bytes
        raw = self.data[address : address + size]
        return int.from_bytes(raw, "little", signed=dtype != DType.U8)

    def put(self, address: int, dtype: int, value: int) -> None:
        size = DType(dtype).bytes
        raw = int(value).to_bytes(size, "little", signed=dtype != DType.U8)
        self.data[address : address + size] = raw

    def record(self, cls, address: int, index: int):
        size = cls.packed_size()
        return cls.unpack(bytes(self.data[address + index * size : address + (index + 1) * size]))


def r24(x: int, m: int, s: int, p: int = 0) -> int:
    if p:
        x = (x + (1 << (p - 1))) >> p
    y = (x * abs(m) + (1 << (s - 1))) >> s
    return -y if m < 0 else y


def clamp(v: int, lo: int, hi: int) -> int:
    return min(max(v, lo), hi)


def size(dtype: int) -> int:
    return DType(dtype).bytes


def points(shape):
    return itertools.product(*map(range, shape))


def at(address, strides, point):
    return address + sum(s * p for s, p in zip(strides, point, strict=True))


def table16(ram: Ram, table: int, q: int) -> int:
    i, frac = (q >> 7) + 256, q & 127
    left, right = (ram.get(table + 2 * j, DType.S16) for j in (i, i + 1))
    return 128 * left + (right - left) * frac


def epilogue(ram: Ram, i, channel: int, acc: int) -> int:
    c = ram.record(isa.ChannelRecord, i.channels, channel)
    v = r24(acc + c.bias_low + (c.bias_high << 32), c.multiplier, c.shift, i.pre_shift)
    if not i.table:
        return clamp(v + i.output_zero, c.lo, c.hi)
    v = table16(ram, i.table, clamp(v, -32767, 32767))
    v = r24(v, i.table_multiplier, i.table_shift) + i.output_zero
    return clamp(v, *DType(i.output_type).range)


def matrix(ram: Ram, i) -> None:
    width, each = i.in_channels // i.groups, i.out_channels // i.groups
    isize, wsize, osize = size(i.input_type), size(i.weight_type), size(i.output_type)
    results = []
    for r, c, o in points((i.out_rows, i.out_columns, i.out_channels)):
        acc = 0
        for u, v, k in points((*i.kernel, width)):
            if isinstance(i, isa.Convolve):
                y = r * i.stride[0] + u * i.dilation[0] - i.pad[0]
                x = c * i.stride[1] + v * i.dilation[1] - i.pad[1]
            else:
                y, odd_y = divmod(r + i.pad[0] - u * i.dilation[0], i.stride[0])
                x, odd_x = divmod(c + i.pad[1] - v * i.dilation[1], i.stride[1])
                if odd_y or odd_x:
                    continue
            if not (0 <= y < i.in_rows and 0 <= x < i.in_columns):
                continue
            channel = o // each * width + k
            code = ram.get(
                i.input + y * i.in_strides[0] + x * i.in_strides[1] + channel * isize, i.input_type
            )
            at_weight = ((o * i.kernel[0] + u) * i.kernel[1] + v) * width + k
            weight = ram.get(i.weights + at_weight * wsize, i.weight_type)
            acc += (code - i.input_zero) * (weight - i.weight_zero)
        address = i.output + r * i.out_strides[0] + c * i.out_strides[1] + o * osize
        results.append((address, epilogue(ram, i, o, acc)))
    for address, value in results:
        ram.put(address, i.output_type, value)


def matrix_product(ram: Ram, i) -> None:
    *batch, m, k, n = i.shape
    for *where, r, c in points((*batch, m, n)):
        acc = 0
        for t in range(k):
            a = ram.get(at(i.a, i.a_strides, (*where, r, t)), i.types[0]) - i.zeros[0]
            b = ram.get(at(i.b, i.b_strides, (*where, t, c)), i.types[1]) - i.zeros[1]
            acc += a * b
        v = r24(acc, i.multiplier, i.shift, i.pre_shift) + i.zeros[2]
        ram.put(at(i.y, i.y_strides, (*where, r, c)), i.types[2], clamp(v, *i.clamp))


def add(ram: Ram, i) -> None:
    for p in points(i.shape):
        a = ram.get(at(i.a, i.a_strides, p), i.types[0]) - i.zeros[0]
        b = ram.get(at(i.b, i.b_strides, p), i.types[1]) - i.zeros[1]
        v = (i.ma * a + i.mb * b + (1 << (i.shift - 1))) >> i.shift
        ram.put(at(i.y, i.y_strides, p), i.types[2], clamp(v + i.zeros[2], *i.clamp))


def add_constant(ram: Ram, i) -> None:
    for p in points(i.shape):
        a = ram.get(at(i.a, i.a_strides, p), i.types[0]) - i.zeros[0]
        c = ram.get(at(i.c, i.c_strides, p), DType.S64)
        v = (i.ma * a + c + (1 << (i.shift - 1))) >> i.shift
        ram.put(at(i.y, i.y_strides, p), i.types[1], clamp(v + i.zeros[1], *i.clamp))


def multiply(ram: Ram, i) -> None:
    for p in points(i.shape):
        a = ram.get(at(i.a, i.a_strides, p), i.types[0]) - i.zeros[0]
        b = ram.get(at(i.b, i.b_strides, p), i.types[1]) - i.zeros[1]
        v = r24(a * b, i.multiplier, i.shift)
        ram.put(at(i.y, i.y_strides, p), i.types[2], clamp(v + i.zeros[2], *i.clamp))


def lookup8(ram: Ram, i) -> None:
    low = -128 if i.types[0] == DType.S8 else 0
    for p in points(i.shape):
        index = ram.get(at(i.x, i.x_strides, p), i.types[0]) - low
        entry = ram.get(i.table + index * size(i.types[1]), i.types[1])
        ram.put(at(i.y, i.y_strides, p), i.types[1], entry)


def lookup16(ram: Ram, i) -> None:
    for p in points(i.shape):
        v = table16(ram, i.table, ram.get(at(i.x, i.x_strides, p), DType.S16))
        v = r24(v, i.multiplier, i.shift) + i.output_zero
        ram.put(at(i.y, i.y_strides, p), i.output_type, clamp(v, *i.clamp))


def parametric_relu(ram: Ram, i) -> None:
    for p in points(i.shape):
        d = ram.get(at(i.x, i.x_strides, p), i.types[0]) - i.zeros[0]
        c = ram.record(isa.ChannelRecord, i.channels, p[3])
        v = r24(d, i.multiplier, i.shift) if d >= 0 else r24(d, c.multiplier, c.shift)
        ram.put(at(i.y, i.y_strides, p), i.types[1], clamp(v + i.zeros[1], *i.clamp))


def rescale(ram: Ram, i) -> None:
    for p in points(i.shape):
        d = ram.get(at(i.x, i.x_strides, p), i.types[0]) - i.zeros[0]
        v = r24(d, i.multiplier, i.shift) + i.zeros[1]
        ram.put(at(i.y, i.y_strides, p), i.types[1], clamp(v, *i.clamp))


def fill(ram: Ram, i) -> None:
    for p in points(i.shape):
        ram.put(at(i.y, i.y_strides, p), i.type, i.value)


def window(ram: Ram, i, r: int, c: int, channel: int):
    """(row, column, code or None outside) of every tap."""
    for u, v in points(i.kernel):
        y = r * i.stride[0] + u * i.dilation[0] - i.pad[0]
        x = c * i.stride[1] + v * i.dilation[1] - i.pad[1]
        inside = 0 <= y < i.in_rows and 0 <= x < i.in_columns
        address = at(i.input, (*i.in_strides, size(i.types[0])), (y, x, channel))
        yield y, x, ram.get(address, i.types[0]) if inside else None


def store_pixel(ram: Ram, i, p, v: int) -> None:
    address = at(i.output, (*i.out_strides, size(i.types[1])), p)
    ram.put(address, i.types[1], clamp(v + i.zeros[1], *i.clamp))


def max_pool(ram: Ram, i) -> None:
    for p in points((i.out_rows, i.out_columns, i.channels)):
        best = max(q for _, _, q in window(ram, i, *p) if q is not None)
        store_pixel(ram, i, p, r24(best - i.zeros[0], i.multiplier, i.shift))


def average_pool(ram: Ram, i) -> None:
    counts = [ram.record(isa.CountRecord, i.counts, k) for k in range(i.count_entries)]
    top, bottom, left, right = i.counted
    for p in points((i.out_rows, i.out_columns, i.channels)):
        taps = list(window(ram, i, *p))
        total = sum(q - i.zeros[0] for _, _, q in taps if q is not None)
        count = sum(top <= y < bottom and left <= x < right for y, x, _ in taps)
        record = next(k for k in counts if k.count == count)
        store_pixel(ram, i, p, r24(total, record.multiplier, record.shift))


def reduce(ram: Ram, i) -> None:
    for o, inner in points((i.shape[0], i.shape[3])):
        total = sum(
            ram.get(at(i.x, i.x_strides, (o, a, b, inner)), i.types[0]) - i.zeros[0]
            for a, b in points(i.shape[1:3])
        )
        v = r24(total, i.multiplier, i.shift, i.pre_shift) + i.zeros[1]
        ram.put(at(i.y, i.y_strides, (o, inner)), i.types[1], clamp(v, *i.clamp))


def attend(ram: Ram, i) -> None:
    m, n, d, e = i.shape
    results = []
    for row in range(m):
        scores = []
        for key in range(n):
            acc = sum(
                (ram.get(at(i.q, i.q_strides, (row, t)), i.types[0]) - i.zeros[0])
                * (ram.get(at(i.k, i.k_strides, (key, t)), i.types[1]) - i.zeros[1])
                for t in range(d)
            )
            v = r24(acc, i.score_multiplier, i.score_shift, i.pre_shift)
            if i.bias:
                v += ram.get(at(i.bias, i.bias_strides, (row, key)), i.types[4])
            if i.mask:
                mask = ram.get(at(i.mask, i.mask_strides, (row, key)), i.types[3]) - i.zeros[3]
                v += r24(mask, i.mask_multiplier, i.mask_shift)
            scores.append(clamp(v, -32767, 32767))
            held = i.scratch + 2 * (row % i.block * n + key)
            results.append((held, DType.S16, scores[-1]))
        weights = [(255 * p + 2**22) >> 23 for p in exponentials(i, scores)]
        for column in range(e):
            acc = sum(
                p * (ram.get(at(i.v, i.v_strides, (key, column)), i.types[2]) - i.zeros[2])
                for key, p in enumerate(weights)
            )
            w = (acc * (2**39 // sum(weights)) + 2**22) >> 23
            v = r24(w, i.multiplier, i.shift) + i.zeros[4]
            code = clamp(v, *DType(i.types[5]).range)
            results.append((at(i.y, i.y_strides, (row, column)), i.types[5], code))
    for result in results:
        ram.put(*result)


EXP2 = [round(Fraction(2.0 ** (23 - i / 256))) for i in range(257)]


def exponentials(i, row) -> list[int]:
    powers = []
    for q in row:
        t = r24(max(row) - q, i.exponent_multiplier, i.exponent_shift)
        n, f = t >> 16, t & 65535
        k, g = f >> 8, f & 255
        p = EXP2[k] - (((EXP2[k] - EXP2[k + 1]) * g + 128) >> 8)
        powers.append(0 if n > 31 else (p + ((1 << n) >> 1)) >> n)
    return powers


def softmax(ram: Ram, i) -> None:
    for o0, o1 in points(i.shape[:2]):
        row = [ram.get(at(i.x, i.x_strides, (o0, o1, k)), i.types[0]) for k in range(i.shape[2])]
        powers = exponentials(i, row)
        share = 2**53 // sum(powers)
        for k, e in enumerate(powers):
            v = r24((e * share + 2**28) >> 29, i.multiplier, i.shift) + i.output_zero
            ram.put(
                at(i.y, i.y_strides, (o0, o1, k)), i.types[1], clamp(v, *DType(i.types[1]).range)
            )


def normalize(ram: Ram, i) -> None:
    for o in points(i.shape[:2]):
        group = list(points(i.shape[2:]))
        codes = [ram.get(at(i.x, i.x_strides, (*o, *p)), i.types[0]) - i.zeros[0] for p in group]
        count, squares, bits = len(codes), sum(q * q for q in codes), 16
        if isinstance(i, isa.Normalize):
            d, w = [count * q - sum(codes) for q in codes], count * squares - sum(codes) ** 2
        elif isinstance(i, isa.NormalizeRms):
            d, w = [count * q for q in codes], count * squares
        else:
            d, w, bits = codes, squares, 24
        w += i.epsilon
        k = 0
        while w and w << k < 2**60:
            k += 2
        share = 2**61 // math.isqrt(w << k) if w else 0
        h = 61 - bits - k // 2
        for p, v in zip(group, d, strict=True):
            n = (v * share + (1 << (h - 1))) >> h
            record = at(i.gains, i.gain_strides, (*o, *p))
            gain = ram.get(record, DType.S32)
            offset = ram.get(record + 4, DType.S64)
            y = ((n * gain + offset + (1 << (i.shift - 1))) >> i.shift) + i.zeros[1]
            ram.put(at(i.y, i.y_strides, (*o, *p)), i.types[1], clamp(y, *i.clamp))


def resize(ram: Ram, i) -> None:
    for r, c, channel in points((i.out_rows, i.out_columns, i.channels)):
        acc = 0
        for u, v in points((i.taps, i.taps)):
            row = ram.record(isa.TapRecord, i.rows, r * i.taps + u)
            column = ram.record(isa.TapRecord, i.columns, c * i.taps + v)
            p = (row.index - i.origin[0], column.index - i.origin[1], channel)
            code = ram.get(at(i.input, (*i.in_strides, size(i.types[0])), p), i.types[0])
            acc += row.coefficient * column.coefficient * (code - i.zeros[0])
        store_pixel(ram, i, (r, c, channel), r24(acc, i.multiplier, i.shift))


EXECUTE = {
    isa.Convolve: matrix, isa.Deconvolve: matrix, isa.MatrixProduct: matrix_product,
    isa.Attend: attend, isa.Add: add, isa.AddConstant: add_constant,
    isa.Multiply: multiply, isa.Lookup8: lookup8, isa.Lookup16: lookup16,
    isa.ParametricRelu: parametric_relu, isa.Rescale: rescale, isa.Fill: fill,
    isa.MaxPool: max_pool, isa.AveragePool: average_pool, isa.Reduce: reduce,
    isa.Softmax: softmax, isa.Resize: resize, isa.Normalize: normalize,
    isa.NormalizeRms: normalize, isa.NormalizeL2: normalize,
}  # fmt: skip


def execute(instruction, image: bytes) -> bytes:
    """SRAM after `instruction`."""
    ram = Ram(bytearray(image))
    EXECUTE[type(instruction)](ram, instruction)
    return bytes(ram.data)
