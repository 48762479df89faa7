"""Every compute instruction against the scalar one, on random shapes, strides, types and scales."""

from __future__ import annotations

import numpy as np
import pytest
import scalar
from one_instruction import SIZE, TARGET, Image, blank, program_of, run_one

from tilewright.graph import DType
from tilewright.machine.machine import ENGINES, Machine
from tilewright.program import isa

TYPES = (DType.U8, DType.S8, DType.S16)


def pick(rng, *values):
    return values[rng.integers(len(values))]


def zero_of(rng, dtype):
    lo, hi = dtype.range
    return 0 if dtype is DType.S16 else int(rng.integers(lo, hi + 1))


def clamp_of(rng, dtype):
    lo, hi = dtype.range
    if rng.integers(2):
        return lo, hi
    a, b = sorted(int(v) for v in rng.integers(lo, hi + 1, 2))
    return a, b


def scale_of(rng, reach, spread):
    """A multiplier and shift that bring values below `reach` to about `spread`."""
    shift = int(rng.integers(20, 50))
    ratio = spread / reach * 2.0 ** rng.uniform(-2, 1)
    m = int(min(max(ratio * 2.0**shift, 1), 2**24))
    return m, shift


def sizes(rng, rank, top):
    return tuple(int(v) for v in rng.integers(1, top + 1, rank))


def channel_records(rng, count, reach, dtype, signed=False):
    data = b""
    for _ in range(count):
        m, shift = scale_of(rng, reach, 200 if dtype.is_8_bit else 40000)
        bias = int(rng.integers(-reach, reach + 1))
        lo, hi = clamp_of(rng, dtype)
        m = -m if signed and rng.integers(2) else m
        data += isa.ChannelRecord(bias & 0xFFFFFFFF, bias >> 32, shift, 0, m, lo, hi).pack()
    return data


def random_table(rng, entries, dtype):
    lo, hi = dtype.range
    return rng.integers(lo, hi + 1, entries).astype(dtype.numpy).tobytes()


def matrix(rng, image, cls):
    wide = bool(rng.integers(3) == 0)
    itype = DType.S16 if wide else pick(rng, DType.U8, DType.S8)
    wtype = pick(rng, DType.S8, DType.U8, DType.S16) if wide else pick(rng, DType.S8, DType.U8)
    otype = pick(rng, *TYPES)
    groups = int(pick(rng, 1, 1, 2, 3))
    width, each = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    if rng.integers(3) == 0:
        groups, width = int(rng.integers(2, 7)), 1
    kernel, stride, dilation = (sizes(rng, 2, n) for n in (3, 3, 2))
    rows, columns, cin, cout = *sizes(rng, 2, 7), groups * width, groups * each
    out_rows, out_columns = sizes(rng, 2, 7)
    taps = kernel[0] * kernel[1] * width
    reach = taps * (32767 if itype is DType.S16 else 255) * (32767 if wtype is DType.S16 else 255)
    pre_shift = max(0, reach.bit_length() + 1 - 37)
    isize, osize, wsize = itype.bytes, otype.bytes, wtype.bytes
    x, x_strides = image.box((rows, columns, cin), isize, contiguous_last=True)
    y, y_strides = image.box((out_rows, out_columns, cout), osize, contiguous_last=True)
    table = 0
    if rng.integers(4) == 0:
        table = image.place(random_table(rng, 513, DType.S16))
    table_m, table_shift = scale_of(rng, 128 * 32767, 200 if otype.is_8_bit else 40000)
    return cls(
        input=x, output=y, weights=image.room(cout * taps * wsize),
        channels=image.place(channel_records(rng, cout, reach >> pre_shift, otype)),
        table=table, in_rows=rows, in_columns=columns, in_channels=cin, in_strides=x_strides[:2],
        out_rows=out_rows, out_columns=out_columns, out_channels=cout, out_strides=y_strides[:2],
        groups=groups, kernel=kernel, stride=stride, dilation=dilation,
        pad=tuple(int(v) for v in rng.integers(-2, 4, 2)), input_type=itype, weight_type=wtype,
        output_type=otype, pre_shift=pre_shift, input_zero=zero_of(rng, itype),
        weight_zero=zero_of(rng, wtype), output_zero=zero_of(rng, otype),
        table_shift=table_shift, table_multiplier=table_m,
    )  # fmt: skip


def matrix_product(rng, image, cls):
    types = tuple(pick(rng, *TYPES) for _ in range(3))
    *batch, m, k, n = sizes(rng, 5, 5)
    (a, sa), (y, sy) = (
        image.box((*batch, m, k), types[0].bytes),
        image.box((*batch, m, n), types[2].bytes),
    )
    b, sb = image.box((*batch, n, k), types[1].bytes)
    if rng.integers(2):
        sb = (*sb[:2], sb[3], sb[2])
    else:
        b, sb = image.box((*batch, k, n), types[1].bytes)
    reach = k * np.prod([255 if t.is_8_bit else 32767 for t in types[:2]])
    pre_shift = max(0, int(reach).bit_length() + 1 - 37)
    multiplier, shift = scale_of(rng, int(reach) >> pre_shift, 200 if types[2].is_8_bit else 40000)
    return cls(
        a=a, b=b, y=y, shape=(*batch, m, k, n), a_strides=(*broadcast(rng, sa[:2]), *sa[2:]),
        b_strides=(*broadcast(rng, sb[:2]), *sb[2:]), y_strides=sy, types=types,
        zeros=tuple(zero_of(rng, t) for t in types), pre_shift=pre_shift, multiplier=multiplier,
        shift=shift, clamp=clamp_of(rng, types[2]),
    )  # fmt: skip


def attend(rng, image, cls):
    q, k, v, y = (pick(rng, *TYPES) for _ in range(4))
    mask, bias = pick(rng, *TYPES), pick(rng, DType.S16, DType.S32)
    m, n, d, e = sizes(rng, 4, 9)
    shapes = [((m, d), q), ((n, d), k), ((n, e), v), ((m, e), y), ((m, n), mask), ((m, n), bias)]
    boxes = [image.box(shape, kind.bytes) for shape, kind in shapes]
    reach = d * int(np.prod([255 if t.is_8_bit else 32767 for t in (q, k)]))
    pre_shift = max(0, reach.bit_length() + 1 - 37)
    score = scale_of(rng, reach >> pre_shift, 40000)
    masked, biased = rng.integers(2, size=2)
    if bias is DType.S32 and biased:
        at, strides = boxes[5]
        for r, c in scalar.points((m, n)):
            word = int(rng.integers(-131071, 131072)).to_bytes(4, "little", signed=True)
            place = at + r * strides[0] + c * strides[1]
            image.bytes[place : place + 4] = word
    block = int(rng.integers(1, m + 1))
    return cls(
        q=boxes[0][0], k=boxes[1][0], v=boxes[2][0], y=boxes[3][0],
        mask=boxes[4][0] * int(masked), bias=boxes[5][0] * int(biased),
        scratch=image.room(2 * block * n), shape=(m, n, d, e), block=block,
        q_strides=boxes[0][1], k_strides=boxes[1][1], v_strides=boxes[2][1],
        y_strides=boxes[3][1], mask_strides=broadcast(rng, boxes[4][1]),
        bias_strides=(int(rng.integers(2)) * boxes[5][1][0], boxes[5][1][1]),
        types=(q, k, v, mask, bias, y),
        zeros=tuple(zero_of(rng, t) for t in (q, k, v, mask, y)), pre_shift=pre_shift,
        score_multiplier=score[0], score_shift=score[1],
        **dict(zip(("mask_multiplier", "mask_shift"), scale_of(rng, 255, 20000), strict=True)),
        exponent_multiplier=int(2.0 ** rng.uniform(-12, -5) * 2**23), exponent_shift=8,
        **dict(zip(("multiplier", "shift"),
                   scale_of(rng, 2.0**16 * (255 if v.is_8_bit else 32767), 200), strict=True)),
    )  # fmt: skip


def broadcast(rng, strides):
    return tuple(0 if rng.integers(4) == 0 else s for s in strides)


def add(rng, image, cls):
    types = tuple(pick(rng, *TYPES) for _ in range(3))
    shape = sizes(rng, 4, 4)
    (a, sa), (b, sb), (y, sy) = (image.box(shape, t.bytes) for t in types)
    shared = {
        "a": a, "b": b, "y": y, "shape": shape, "a_strides": broadcast(rng, sa),
        "b_strides": broadcast(rng, sb), "y_strides": sy, "types": types,
        "zeros": tuple(zero_of(rng, t) for t in types), "clamp": clamp_of(rng, types[2]),
    }  # fmt: skip
    if cls is isa.Multiply:
        reach = np.prod([255 if t.is_8_bit else 32767 for t in types[:2]])
        m, shift = scale_of(rng, float(reach), 200)
        return cls(**shared, multiplier=m, shift=shift)
    ma, mb = (int(v) for v in rng.integers(-(2**24), 2**24, 2))
    return cls(**shared, ma=ma, mb=mb, shift=int(rng.integers(1, 41)))


def add_constant(rng, image, cls):
    types = pick(rng, *TYPES), pick(rng, *TYPES)
    shape = sizes(rng, 4, 4)
    (a, sa), (c, sc), (y, sy) = (image.box(shape, n) for n in (types[0].bytes, 8, types[1].bytes))
    values = rng.integers(-(2**45), 2**45, 200)
    image.bytes[c : c + 8 * len(values)] = values.astype("<i8").tobytes()
    return cls(
        a=a, c=c, y=y, shape=shape, a_strides=broadcast(rng, sa), c_strides=broadcast(rng, sc),
        y_strides=sy, types=types, zeros=tuple(zero_of(rng, t) for t in types),
        ma=int(rng.integers(0, 2**24)), shift=int(rng.integers(1, 41)),
        clamp=clamp_of(rng, types[1]),
    )  # fmt: skip


def lookup(rng, image, cls):
    xtype = DType.S16 if cls is isa.Lookup16 else pick(rng, DType.U8, DType.S8)
    ytype = pick(rng, *TYPES)
    shape = sizes(rng, 4, 5)
    (x, sx), (y, sy) = image.box(shape, xtype.bytes), image.box(shape, ytype.bytes)
    shared = {"x": x, "y": y, "shape": shape, "x_strides": sx, "y_strides": sy}
    if cls is isa.Lookup8:
        table = image.place(random_table(rng, 256, ytype))
        return cls(**shared, table=table, types=(xtype, ytype))
    m, shift = scale_of(rng, 128 * 32767, 200 if ytype.is_8_bit else 40000)
    return cls(
        **shared, table=image.place(random_table(rng, 513, DType.S16)), output_type=ytype,
        output_zero=zero_of(rng, ytype), multiplier=m, shift=shift, clamp=clamp_of(rng, ytype),
    )  # fmt: skip


def unary(rng, image, cls):
    types = pick(rng, *TYPES), pick(rng, *TYPES)
    shape = sizes(rng, 6 if cls is isa.Rescale else 4, 3)
    (x, sx), (y, sy) = (image.box(shape, t.bytes) for t in types)
    if cls is isa.Rescale and rng.integers(2):
        order = rng.permutation(6)
        y, strides = image.box([shape[a] for a in order], types[1].bytes)
        sy = tuple(strides[place] for place in np.argsort(order))
    reach = 255 if types[0].is_8_bit else 32767
    m, shift = scale_of(rng, reach, 200 if types[1].is_8_bit else 40000)
    fields = {
        "x": x, "y": y, "shape": shape, "x_strides": broadcast(rng, sx), "y_strides": sy,
        "types": types, "zeros": tuple(zero_of(rng, t) for t in types), "multiplier": m,
        "shift": shift, "clamp": clamp_of(rng, types[1]),
    }  # fmt: skip
    if cls is isa.ParametricRelu:
        channels = image.place(channel_records(rng, shape[3], reach, types[1], signed=True))
        return cls(**fields, channels=channels)
    if rng.integers(3) == 0:
        zero = fields["zeros"][0]
        fields |= {
            "types": types[:1] * 2,
            "zeros": (zero, zero),
            "multiplier": 1 << 23,
            "shift": 23,
        }
        kind = np.iinfo(types[0].numpy)
        fields["clamp"] = clamp_of(rng, types[0]) if rng.integers(2) else (kind.min, kind.max)
        fields["y"], fields["y_strides"] = image.box(shape, types[0].bytes)
    elif rng.integers(2):
        fields["multiplier"] = -m
    return cls(**fields)


def fill(rng, image, cls):
    dtype = pick(rng, *TYPES, DType.S32)
    shape = sizes(rng, 4, 5)
    y, strides = image.box(shape, dtype.bytes)
    lo, hi = dtype.range
    return cls(y=y, shape=shape, y_strides=strides, type=dtype, value=int(rng.integers(lo, hi)))


def image_fields(rng, image, itype, otype):
    rows, columns, channels = sizes(rng, 3, 6)
    out_rows, out_columns = sizes(rng, 2, 6)
    x, x_strides = image.box((rows, columns, channels), itype.bytes, contiguous_last=True)
    y, y_strides = image.box((out_rows, out_columns, channels), otype.bytes, contiguous_last=True)
    m, shift = scale_of(rng, 1000, 200 if otype.is_8_bit else 40000)
    return {
        "input": x, "output": y, "in_rows": rows, "in_columns": columns, "channels": channels,
        "in_strides": x_strides[:2], "out_rows": out_rows, "out_columns": out_columns,
        "out_strides": y_strides[:2], "types": (itype, otype),
        "zeros": (zero_of(rng, itype), zero_of(rng, otype)), "clamp": clamp_of(rng, otype),
        "multiplier": m, "shift": shift,
    }  # fmt: skip


def pool(rng, image, cls):
    itype = pick(rng, *TYPES)
    otype = itype if rng.integers(2) else pick(rng, *TYPES)
    fields = image_fields(rng, image, itype, otype)
    if cls is isa.MaxPool and otype is itype and rng.integers(2):
        zero = fields["zeros"][0]
        fields |= {"multiplier": 1 << 23, "shift": 23, "zeros": (zero, zero)}
    kernel, stride, dilation = (sizes(rng, 2, n) for n in (4, 3, 2))
    # Every window holds something: it begins in the padding, but not beyond it.
    pad = tuple(
        int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True)
    )
    ins = [fields["in_rows"], fields["in_columns"]]
    if cls is isa.MaxPool:
        # With a dilation no tap may hit although the window overlaps; keep to plain padding.
        dilation = tuple(1 if p else d for p, d in zip(pad, dilation, strict=True))
        pad = tuple(min(p, k - 1) for p, k in zip(pad, kernel, strict=True))
    for key, n, s, p in zip(("out_rows", "out_columns"), ins, stride, pad, strict=True):
        fields[key] = min(fields[key], (n - 1 + p) // s + 1)
    fields |= {"kernel": kernel, "stride": stride, "dilation": dilation, "pad": pad}
    if cls is isa.MaxPool:
        return cls(**fields)
    del fields["multiplier"], fields["shift"]
    if rng.integers(2):
        counted = (0, ins[0], 0, ins[1])
    else:
        counted = (-pad[0], ins[0] + int(rng.integers(0, 3)), -pad[1], ins[1])
    entries = [(r * c) for r in range(kernel[0] + 1) for c in range(kernel[1] + 1)]
    entries = list(dict.fromkeys(int(e) for e in rng.permutation(entries)))
    records = b""
    for count in entries:
        m, shift = scale_of(rng, 255 * max(count, 1), 200 if otype.is_8_bit else 40000)
        records += isa.CountRecord(count, m, shift).pack()
    return cls(**fields, counted=counted, counts=image.place(records), count_entries=len(entries))


def reduce(rng, image, cls):
    types = pick(rng, *TYPES), pick(rng, *TYPES)
    shape = sizes(rng, 4, 6)
    x, sx = image.box(shape, types[0].bytes)
    y, sy = image.box((shape[0], shape[3]), types[1].bytes)
    m, shift = scale_of(rng, 255 * shape[1] * shape[2], 200 if types[1].is_8_bit else 40000)
    return cls(
        x=x, y=y, shape=shape, x_strides=sx, y_strides=sy, types=types,
        zeros=tuple(zero_of(rng, t) for t in types), pre_shift=int(rng.integers(0, 3)),
        multiplier=m, shift=shift, clamp=clamp_of(rng, types[1]),
    )  # fmt: skip


def softmax(rng, image, cls):
    types = pick(rng, *TYPES), pick(rng, *TYPES)
    shape = (*sizes(rng, 2, 3), int(rng.integers(1, 40)))
    (x, sx), (y, sy) = (image.box(shape, t.bytes) for t in types)
    step = 2.0 ** rng.uniform(-12, 1)
    output = 24 if types[1].is_8_bit else 30
    return cls(
        x=x, y=y, shape=shape, x_strides=sx, y_strides=sy, types=types,
        output_zero={DType.U8: 0, DType.S8: -128, DType.S16: 0}[types[1]],
        exponent_multiplier=int(step * 2**23), exponent_shift=8,
        multiplier=2**23 - 5, shift=23 + 24 - output + 15,
    )  # fmt: skip


def normalize(rng, image, cls):
    types = pick(rng, *TYPES), pick(rng, *TYPES)
    shape = (*sizes(rng, 4, 3), int(rng.integers(1, 12)))
    (x, sx), (y, sy) = (image.box(shape, t.bytes) for t in types)
    record = isa.AffineRecord.packed_size()
    used = [bool(rng.integers(2)) for _ in shape]
    extents = tuple(n if u else 1 for n, u in zip(shape, used, strict=True))
    strides, data, step = [], b"", record
    for n, u in zip(reversed(extents), reversed(used), strict=True):
        strides.insert(0, step if u else 0)
        step *= n
    for _ in range(step // record):
        offset = int(rng.integers(-(2**40), 2**40))
        gain = int(rng.integers(-(2**24), 2**24))
        data += isa.AffineRecord(gain, offset & 0xFFFFFFFF, offset >> 32).pack()
    return cls(
        x=x, y=y, gains=image.place(data), shape=shape, x_strides=sx, y_strides=sy,
        gain_strides=tuple(strides), types=types, zeros=tuple(zero_of(rng, t) for t in types),
        epsilon=int(pick(rng, 0, 1, 12345, 2**60)),
        shift=int(rng.integers(30, 41)) - 4 * types[1].bytes, clamp=clamp_of(rng, types[1]),
    )  # fmt: skip


def resize(rng, image, cls):
    itype, otype = pick(rng, *TYPES), pick(rng, *TYPES)
    fields = image_fields(rng, image, itype, otype)
    taps = int(pick(rng, 1, 2, 4))
    origin = sizes(rng, 2, 9)
    fields["multiplier"], fields["shift"] = scale_of(rng, 255 * 2.0**22, 200)
    for axis, (key, extent) in enumerate((("rows", "in_rows"), ("columns", "in_columns"))):
        data = b""
        for _ in range(fields["out_" + key] * taps):
            index = origin[axis] + int(rng.integers(fields[extent]))
            data += isa.TapRecord(index, int(rng.integers(-400, 2049)) // taps).pack()
        fields[key] = image.place(data)
    return cls(**fields, taps=taps, origin=origin)


MAKERS = {
    isa.Convolve: matrix, isa.Deconvolve: matrix,
    isa.MatrixProduct: matrix_product, isa.Attend: attend, isa.Add: add, isa.Multiply: add,
    isa.AddConstant: add_constant, isa.Lookup8: lookup, isa.Lookup16: lookup,
    isa.ParametricRelu: unary, isa.Rescale: unary, isa.Fill: fill, isa.MaxPool: pool,
    isa.AveragePool: pool, isa.Reduce: reduce, isa.Softmax: softmax, isa.Resize: resize,
    isa.Normalize: normalize, isa.NormalizeRms: normalize, isa.NormalizeL2: normalize,
}  # fmt: skip


def test_nothing_is_left_out():
    assert set(MAKERS) | {isa.Load, isa.Store} == set(ENGINES) == set(isa.INSTRUCTIONS)
    assert set(scalar.EXECUTE) == set(MAKERS)


@pytest.mark.parametrize("cls", MAKERS)
def test_against_scalar(cls):
    moved = 0
    for seed in range(40):
        rng = np.random.default_rng((cls.OPCODE, seed))
        image = Image(rng)
        instruction = MAKERS[cls](rng, image, cls)
        before = bytes(image.bytes)
        after = run_one(instruction, before)
        assert after == scalar.execute(instruction, before), (seed, instruction)
        moved += after != before
    assert moved > 20


def test_transfers_move_boxes():
    """A 4-D box, both sides strided."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        shape = sizes(rng, 4, 5)
        image = Image(rng)
        (ddr, ds), (sram, ss) = (image.box(shape, 1, contiguous_last=True) for _ in range(2))
        load = isa.Load(ddr, sram, shape, ds[:3], ss[:3])
        program = program_of(load)
        data = np.frombuffer(bytes(image.bytes), np.uint8)
        result = Machine(program, TARGET, b"").run({"image": data}).outputs["result"]
        expected = data.copy()
        for p in scalar.points(shape):
            expected[scalar.at(sram, (*ss[:3], 1), p)] = data[scalar.at(ddr, (*ds[:3], 1), p)]
        assert len(result) == SIZE
        np.testing.assert_array_equal(result, expected)


def test_fill_of_64_bits():
    image = bytes(1 << 12)
    word = blank(
        isa.Fill, y=64, shape=(1, 1, 1, 3), y_strides=(0, 0, 0, 8), type=DType.S64, value=-2
    )
    after = run_one(word, image)
    assert np.frombuffer(after[64:88], "<i8").tolist() == [-2] * 3
