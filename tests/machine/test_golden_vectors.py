"""The golden vectors of the arithmetic through programs of one instruction."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from one_instruction import Image, run_one

from tilewright import numerics
from tilewright.graph import DType
from tilewright.program import isa

sys.path.insert(0, str(Path(__file__).parents[1] / "vectors"))

import golden
from cases_elementwise import FUNCTIONS

RNG = np.random.default_rng(0)
SIZE = 1 << 17


def image():
    return Image(RNG, SIZE)


def placed(ram: Image, array: np.ndarray) -> int:
    return ram.place(np.ascontiguousarray(array).tobytes())


def row(count: int, size: int):
    """Shape and strides of `count` elements as a 4-D box."""
    return (1, 1, 1, count), (0, 0, 0, size)


def read(memory: bytes, address: int, expected: np.ndarray) -> np.ndarray:
    data = memory[address : address + expected.nbytes]
    return np.frombuffer(data, expected.dtype).reshape(expected.shape)


def epilogue(bias, ratios, lo, hi) -> bytes:
    records = []
    for b, ratio in zip(bias, ratios, strict=True):
        m, shift = numerics.multiplier(ratio)
        b = int(b)
        records.append(isa.ChannelRecord(b & 0xFFFFFFFF, b >> 32, shift, 0, m, lo, hi).pack())
    return b"".join(records)


def scales(case, name, count):
    return [float(s) for s in np.broadcast_to(case[name], count)]


@pytest.mark.parametrize("case", list(golden.cases("conv2d")))
def test_conv2d(case):
    ram = image()
    x, w = case["x"][0].transpose(1, 2, 0), case["w"].transpose(0, 2, 3, 1)
    y = np.ascontiguousarray(case["y"][0].transpose(1, 2, 0))
    (rows, columns, cin), (cout, kh, kw, _) = x.shape, w.shape
    ratios = [case["x_scale"] * s / case["y_scale"] for s in scales(case, "w_scale", cout)]
    types = {k: golden.dtype(case, k) for k in "xwy"}
    output = ram.room(y.nbytes)
    instruction = isa.Convolve(
        input=placed(ram, x), output=output, weights=placed(ram, w),
        channels=ram.place(epilogue(case["bias"], ratios, *map(int, case["clamp"]))), table=0,
        in_rows=rows, in_columns=columns, in_channels=cin,
        in_strides=(columns * cin * x.itemsize, cin * x.itemsize), out_rows=y.shape[0],
        out_columns=y.shape[1], out_channels=cout,
        out_strides=(y.shape[1] * cout * y.itemsize, cout * y.itemsize), groups=case["group"],
        kernel=(kh, kw), stride=tuple(map(int, case["strides"])),
        dilation=tuple(map(int, case["dilations"])), pad=tuple(map(int, case["pads"][:2])),
        input_type=types["x"], weight_type=types["w"], output_type=types["y"], pre_shift=0,
        input_zero=case["x_zero_point"], weight_zero=case["w_zero_point"],
        output_zero=case["y_zero_point"], table_shift=0, table_multiplier=0,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(instruction, bytes(ram.bytes)), output, y), y)


@pytest.mark.parametrize("case", list(golden.cases("matmul")))
def test_matmul(case):
    """A 1x1 convolution of one column; the right side stands transposed, as weights do."""
    ram = image()
    a, b, y = case["a"], case["b"].T, case["y"]
    (m, k), n = a.shape, len(b)
    ratio = case["a_scale"] * case["b_scale"] / case["y_scale"] * 2.0 ** case["pre_shift"]
    types = {name: golden.dtype(case, name) for name in "aby"}
    output = ram.room(y.nbytes)
    instruction = isa.Convolve(
        input=placed(ram, a), output=output, weights=placed(ram, b),
        channels=ram.place(epilogue([0] * n, [ratio] * n, *types["y"].range)), table=0,
        in_rows=m, in_columns=1, in_channels=k, in_strides=(k * a.itemsize, k * a.itemsize),
        out_rows=m, out_columns=1, out_channels=n, out_strides=(n * y.itemsize, n * y.itemsize),
        groups=1, kernel=(1, 1), stride=(1, 1), dilation=(1, 1), pad=(0, 0),
        input_type=types["a"], weight_type=types["b"], output_type=types["y"],
        pre_shift=case["pre_shift"], input_zero=case["a_zero_point"],
        weight_zero=case["b_zero_point"], output_zero=case["y_zero_point"], table_shift=0,
        table_multiplier=0,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(instruction, bytes(ram.bytes)), output, y), y)


def binary_fields(case, ram):
    a, b, y = case["a"], case["b"], case["y"]
    types = tuple(golden.dtype(case, name) for name in "aby")
    shape, _ = row(len(y), 1)
    return {
        "a": placed(ram, a), "b": placed(ram, b), "y": ram.room(y.nbytes), "shape": shape,
        "a_strides": row(1, a.itemsize)[1], "b_strides": row(1, b.itemsize)[1],
        "y_strides": row(1, y.itemsize)[1], "types": types,
        "zeros": tuple(case[f"{n}_zero_point"] for n in "aby"), "clamp": types[2].range,
    }  # fmt: skip


@pytest.mark.parametrize("case", list(golden.cases("add_sub")))
def test_add_sub(case):
    ram = image()
    ma, mb = map(int, case["multipliers"])
    sign = 1 if case["op"] == "Add" else -1
    add = isa.Add(**binary_fields(case, ram), ma=ma, mb=sign * mb, shift=case["shift"])
    found = read(run_one(add, bytes(ram.bytes)), add.y, case["y"])
    np.testing.assert_array_equal(found, case["y"])


@pytest.mark.parametrize("case", list(golden.cases("mul")))
def test_mul(case):
    ram = image()
    m, shift = numerics.multiplier(case["a_scale"] * case["b_scale"] / case["y_scale"])
    mul = isa.Multiply(**binary_fields(case, ram), multiplier=m, shift=shift)
    found = read(run_one(mul, bytes(ram.bytes)), mul.y, case["y"])
    np.testing.assert_array_equal(found, case["y"])


@pytest.mark.parametrize("case", list(golden.cases("add_constant")))
def test_add_constant(case):
    ram = image()
    a, y = case["a"], case["y"]
    types = golden.dtype(case, "a"), golden.dtype(case, "y")
    add = isa.AddConstant(
        a=placed(ram, a), c=placed(ram, case["c_int"].astype("<i8")), y=ram.room(y.nbytes),
        shape=row(len(y), 1)[0], a_strides=row(1, a.itemsize)[1], c_strides=row(1, 8)[1],
        y_strides=row(1, y.itemsize)[1], types=types,
        zeros=(case["a_zero_point"], case["y_zero_point"]), ma=case["multiplier"],
        shift=case["shift"], clamp=types[1].range,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(add, bytes(ram.bytes)), add.y, y), y)


@pytest.mark.parametrize("case", list(golden.cases("table")))
def test_table(case):
    ram = image()
    x, y = case["x"], case["y"]
    types = golden.dtype(case, "x"), golden.dtype(case, "y")
    fields = {
        "x": placed(ram, x), "y": ram.room(y.nbytes), "table": placed(ram, case["table"]),
        "shape": row(len(y), 1)[0], "x_strides": row(1, x.itemsize)[1],
        "y_strides": row(1, y.itemsize)[1],
    }  # fmt: skip
    if types[0].is_8_bit:
        lookup = isa.Lookup8(**fields, types=types)
    else:
        lookup = lookup16(case, fields, types[1])
    np.testing.assert_array_equal(read(run_one(lookup, bytes(ram.bytes)), lookup.y, y), y)


def lookup16(case, fields, ytype):
    """The vectors leave the table's scale to the formula: the largest |f| over 32767, or sy."""
    sy = case["y_scale"]
    if ytype.is_8_bit:
        f = FUNCTIONS[case["op"]]
        peak = max(abs(f(case["x_scale"] * (-32768 + 128 * i))) for i in range(513))
        m, shift = numerics.multiplier(peak / 32767 / (128 * sy))
    else:
        m, shift = numerics.multiplier(sy / (128 * sy))
    return isa.Lookup16(
        **fields, output_type=ytype, output_zero=case["y_zero_point"], multiplier=m, shift=shift,
        clamp=ytype.range,
    )  # fmt: skip


@pytest.mark.parametrize("case", list(golden.cases("softmax")))
def test_softmax(case):
    ram = image()
    x, y = case["x"], case["y"]
    rows, n = x.shape
    exponent = numerics.softmax_multiplier(case["x_scale"])
    m, shift = numerics.multiplier(2.0**-24 / case["y_scale"])
    softmax = isa.Softmax(
        x=placed(ram, x), y=ram.room(y.nbytes), shape=(1, rows, n),
        x_strides=(0, n * x.itemsize, x.itemsize), y_strides=(0, n * y.itemsize, y.itemsize),
        types=(golden.dtype(case, "x"), golden.dtype(case, "y")),
        output_zero=case["y_zero_point"], exponent_multiplier=exponent.m,
        exponent_shift=exponent.shift, multiplier=m, shift=shift,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(softmax, bytes(ram.bytes)), softmax.y, y), y)


NORMS = {"LayerNorm": isa.Normalize, "RMSNorm": isa.NormalizeRms, "L2": isa.NormalizeL2}


@pytest.mark.parametrize("case", list(golden.cases("norm")))
def test_norm(case):
    ram = image()
    x, y = case["x"], case["y"]
    rows, n = x.shape
    cls = NORMS[case["kind"]]
    unit = 1 if cls is isa.NormalizeL2 else n
    gains = b"".join(
        isa.AffineRecord(int(g), int(b) & 0xFFFFFFFF, int(b) >> 32).pack()
        for g, b in zip(case["gamma_int"], case["beta_int"], strict=True)
    )
    size = isa.AffineRecord.packed_size()
    types = golden.dtype(case, "x"), golden.dtype(case, "y")
    norm = cls(
        x=placed(ram, x), y=ram.room(y.nbytes), gains=ram.place(gains), shape=(1, rows, 1, 1, n),
        x_strides=(0, n * x.itemsize, 0, 0, x.itemsize), gain_strides=(0, 0, 0, 0, size),
        y_strides=(0, n * y.itemsize, 0, 0, y.itemsize), types=types,
        zeros=(case["x_zero_point"], case["y_zero_point"]),
        epsilon=numerics.norm_epsilon(case["epsilon"], unit, case["x_scale"]),
        shift=case["shift"], clamp=types[1].range,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(norm, bytes(ram.bytes)), norm.y, y), y)


@pytest.mark.parametrize("case", list(golden.cases("attention")))
def test_attention(case):
    """Scores are given as constants: queries and keys add nothing."""
    ram = image()
    x, v, y = case["x"].astype(np.int16), case["v"], case["y"]
    (rows, keys), depth = x.shape, v.shape[1]
    exponent = numerics.softmax_multiplier(case["x_scale"])
    m, shift = numerics.multiplier(2.0**-16 * case["v_scale"] / case["y_scale"])
    zeros = ram.place(bytes(max(rows, keys)))
    types = golden.dtype(case, "v"), golden.dtype(case, "y")
    attend = isa.Attend(
        q=zeros, k=zeros, v=placed(ram, v), mask=0, bias=placed(ram, x),
        scratch=ram.room(4 * keys), y=ram.room(y.nbytes), shape=(rows, keys, 1, depth), block=2,
        q_strides=(1, 1), k_strides=(1, 1), v_strides=(depth * v.itemsize, v.itemsize),
        mask_strides=(0, 0), bias_strides=(2 * keys, 2), y_strides=(depth * y.itemsize, y.itemsize),
        types=(DType.S8, DType.S8, types[0], DType.U8, DType.S16, types[1]),
        zeros=(0, 0, case["v_zero_point"], 0, case["y_zero_point"]), pre_shift=0,
        score_multiplier=0, score_shift=62, mask_multiplier=0, mask_shift=62,
        exponent_multiplier=exponent.m, exponent_shift=exponent.shift, multiplier=m, shift=shift,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(attend, bytes(ram.bytes)), attend.y, y), y)


@pytest.mark.parametrize("case", list(golden.cases("average")))
def test_average(case):
    """As a reduction of rows, and as a pool whose one window is the row."""
    x, y = case["x"], case["y"]
    rows, count = x.shape
    types = golden.dtype(case, "x"), golden.dtype(case, "y")
    m, shift = numerics.multiplier(case["x_scale"] / (case["y_scale"] * count))
    zeros = case["x_zero_point"], case["y_zero_point"]
    ram = image()
    reduce = isa.Reduce(
        x=placed(ram, x), y=ram.room(y.nbytes), shape=(rows, 1, count, 1),
        x_strides=(count * x.itemsize, 0, x.itemsize, 0), y_strides=(y.itemsize, 0), types=types,
        zeros=zeros, pre_shift=0, multiplier=m, shift=shift, clamp=types[1].range,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(reduce, bytes(ram.bytes)), reduce.y, y), y)
    pool = isa.AveragePool(
        input=reduce.x, output=reduce.y,
        counts=ram.place(isa.CountRecord(count, m, shift).pack()), count_entries=1, in_rows=rows,
        in_columns=count, channels=1, in_strides=(count * x.itemsize, x.itemsize), out_rows=rows,
        out_columns=1, out_strides=(y.itemsize, y.itemsize), kernel=(1, count), stride=(1, 1),
        dilation=(1, 1), pad=(0, 0), counted=(0, rows, 0, count), types=types, zeros=zeros,
        clamp=types[1].range,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(pool, bytes(ram.bytes)), pool.output, y), y)


def linear_taps(mode, n_in, n_out):
    """TapRecords of one axis, two for each output (section 10 of the arithmetic)."""
    data = b""
    for o in range(n_out):
        if mode == "align_corners":
            position = Fraction(o * (n_in - 1), n_out - 1)
        elif mode == "asymmetric":
            position = Fraction(o * n_in, n_out)
        else:
            position = Fraction((2 * o + 1) * n_in, 2 * n_out) - Fraction(1, 2)
        first = math.floor(position)
        weights = numerics.resize_coefficients([1 - (position - first), position - first])
        for at, weight in zip((first, first + 1), weights, strict=True):
            data += isa.TapRecord(min(max(at, 0), n_in - 1), int(weight)).pack()
    return data


@pytest.mark.parametrize("case", list(golden.cases("resize_linear")))
def test_resize_linear(case):
    ram = image()
    x, y = case["x"], case["y"]
    dtype = golden.dtype(case | {"x_type": case["type"]}, "x")
    m, shift = numerics.multiplier(case["x_scale"] / (case["y_scale"] * 2.0**22))
    resize = isa.Resize(
        input=placed(ram, x), output=ram.room(y.nbytes),
        rows=ram.place(linear_taps(case["mode"], x.shape[0], y.shape[0])),
        columns=ram.place(linear_taps(case["mode"], x.shape[1], y.shape[1])), taps=2,
        origin=(0, 0), in_rows=x.shape[0], in_columns=x.shape[1], channels=1,
        in_strides=(x.shape[1], 1), out_rows=y.shape[0], out_columns=y.shape[1],
        out_strides=(y.shape[1], 1), types=(dtype, dtype),
        zeros=(case["x_zero_point"], case["y_zero_point"]), multiplier=m, shift=shift,
        clamp=dtype.range,
    )  # fmt: skip
    np.testing.assert_array_equal(read(run_one(resize, bytes(ram.bytes)), resize.output, y), y)
