"""Numerics and the operators' `reference` reproduce every golden vector exactly."""

from __future__ import annotations

import math

import numpy as np
from golden import cases, dtype, tensor

from tilewright import numerics
from tilewright.graph import DType, TensorType
from tilewright.ops import functions, normalization
from tilewright.ops.add import Add, AddConstant
from tilewright.ops.attention import Attention
from tilewright.ops.conv import Conv
from tilewright.ops.dense import Dense
from tilewright.ops.l2_norm import L2Norm
from tilewright.ops.layer_norm import LayerNorm
from tilewright.ops.matmul import MatMul, product_ratio
from tilewright.ops.mul import Mul
from tilewright.ops.product import channel_records
from tilewright.ops.rms_norm import RmsNorm
from tilewright.ops.softmax import Softmax
from tilewright.ops.table import Table, Table16


def run(op, arrays, types, out):
    """`reference` after `infer`, whose shape must be the output's."""
    (shape,) = op.infer(types, "vector")
    assert shape == out.shape
    (y,) = op.reference(arrays, types, [out])
    assert y.dtype == out.dtype.numpy
    return y


def records(ratios, bias, limits):
    m, shift = numerics.multipliers(ratios, "vector")
    lo, hi = (np.full(len(bias), v) for v in limits)
    return channel_records(bias, m, shift, lo, hi)


def test_rescale():
    for case in cases("rescale"):
        m, shift = numerics.multiplier(case["ratio"])
        assert (m, shift) == (case["multiplier"], case["shift"])
        np.testing.assert_array_equal(numerics.r24(case["x"], m, shift), case["y"])


def test_rescale_with_a_pre_shift():
    for case in cases("rescale_wide"):
        p = case["pre_shift"]
        m, shift = numerics.multiplier(case["ratio"] * 2.0**p)
        assert (m, shift) == (case["multiplier"], case["shift"])
        np.testing.assert_array_equal(numerics.r24(case["x"], m, shift, p), case["y"])


def test_borders():
    for case in cases("quantize"):
        t = DType[case["type"].upper()]
        scale, zero = case["scale"], case["zero_point"]
        np.testing.assert_array_equal(
            numerics.quantize(case["x"], scale, zero, *t.range), case["y"]
        )
        back = numerics.dequantize(case["y"], scale, zero)
        np.testing.assert_array_equal(back, case["dequantized"])


def test_convolution():
    for case in cases("conv2d"):
        x = case["x"].transpose(0, 2, 3, 1)
        weight = case["w"].transpose(0, 2, 3, 1)
        expected = case["y"].transpose(0, 2, 3, 1)
        xt = tensor(case, "x", x.shape)
        out = tensor(case, "y", expected.shape)
        scale = np.broadcast_to(case["w_scale"], len(weight))
        ratios = [xt.scale * float(s) / out.scale for s in scale]
        op = Conv(
            groups=case["group"],
            stride=tuple(case["strides"]),
            dilation=tuple(case["dilations"]),
            pads=tuple(case["pads"]),
            weight_type=dtype(case, "w"),
            weight_zero=case["w_zero_point"],
            pre_shift=0,
            table_multiplier=0,
            table_shift=0,
            weight=weight,
            channels=records(ratios, case["bias"], case["clamp"]),
            table=None,
        )
        np.testing.assert_array_equal(run(op, [x], [xt], out), expected)


def test_matrix_product():
    for case in cases("matmul"):
        a, b, out = (tensor(case, n) for n in "aby")
        p = case["pre_shift"]
        count = b.shape[1]
        op = Dense(
            weight_type=b.dtype,
            weight_zero=b.zero_point,
            pre_shift=p,
            table_multiplier=0,
            table_shift=0,
            weight=np.ascontiguousarray(case["b"].T),
            channels=records(
                [a.scale * b.scale / out.scale * 2.0**p] * count,
                np.zeros(count, np.int64),
                out.dtype.range,
            ),
            table=None,
        )
        np.testing.assert_array_equal(run(op, [case["a"]], [a], out), case["y"])


def test_matrix_product_of_run_time_operands():
    for case in cases("matmul"):
        a, b, out = (tensor(case, n) for n in "aby")
        step, p = product_ratio(a.shape[1], a, b, "vector")
        assert p == case["pre_shift"]
        m, shift = numerics.multiplier(step / out.scale)
        op = MatMul(0, (0, 1), p, m, shift, *out.dtype.range)
        y = run(op, [case["a"], case["b"]], [a, b], out)
        np.testing.assert_array_equal(y, case["y"])


def test_add_and_sub():
    for case in cases("add_sub"):
        a, b, out = (tensor(case, n) for n in "aby")
        wide = DType.S16 in (a.dtype, b.dtype, out.dtype)
        p = numerics.add_parameters(a.scale, b.scale, out.scale, wide, "vector")
        assert [p.ma, p.mb, p.shift] == [*case["multipliers"], case["shift"]]
        op = Add(p.ma, p.mb if case["op"] == "Add" else -p.mb, p.shift, *out.dtype.range)
        np.testing.assert_array_equal(run(op, [case["a"], case["b"]], [a, b], out), case["y"])


def test_add_of_a_constant():
    for case in cases("add_constant"):
        a, out = tensor(case, "a"), tensor(case, "y")
        wide_output = out.dtype is DType.S16
        wide = wide_output or a.dtype is DType.S16
        ma, c, shift = numerics.add_constant_parameters(
            a.scale, out.scale, case["c"], wide, wide_output, "vector"
        )
        assert (ma, shift) == (case["multiplier"], case["shift"])
        np.testing.assert_array_equal(c, case["c_int"])
        op = AddConstant(ma, shift, *out.dtype.range, c)
        np.testing.assert_array_equal(run(op, [case["a"]], [a], out), case["y"])


def test_mul():
    for case in cases("mul"):
        a, b, out = (tensor(case, n) for n in "aby")
        m, shift = numerics.multiplier(a.scale * b.scale / out.scale)
        op = Mul(m, shift, *out.dtype.range)
        np.testing.assert_array_equal(run(op, [case["a"], case["b"]], [a, b], out), case["y"])


FUNCTIONS = {
    "Sigmoid": functions.PLAIN["Sigmoid"],
    "Tanh": math.tanh,
    "Gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
    "HardSwish": functions.PLAIN["HardSwish"],
    "Silu": lambda v: v * functions.sigmoid(v),
    "LeakyRelu": lambda v: v if v >= 0 else 0.01 * v,
    "Exp": functions.PLAIN["Exp"],
}


def test_tables():
    for case in cases("table"):
        x, out = tensor(case, "x"), tensor(case, "y")
        f = FUNCTIONS[case["op"]]
        if x.dtype.is_8_bit:
            entries = numerics.table8(
                f, x.dtype.range, x.scale, x.zero_point, out.dtype.range, out.scale, out.zero_point
            )
            op = Table(entries.astype(out.dtype.numpy))
        else:
            table = numerics.table16(f, x.scale, out.scale, out.dtype is DType.S16, "vector")
            entries = table.entries
            op = Table16(table.m, table.shift, *out.dtype.range, entries.astype(np.int16))
        np.testing.assert_array_equal(entries, case["table"], case["op"])
        np.testing.assert_array_equal(run(op, [case["x"]], [x], out), case["y"])


def test_softmax():
    for case in cases("softmax"):
        x, out = tensor(case, "x"), tensor(case, "y")
        exponent = numerics.softmax_multiplier(x.scale)
        op = Softmax(*exponent, *numerics.multiplier(2.0**-24 / out.scale))
        np.testing.assert_array_equal(run(op, [case["x"]], [x], out), case["y"])


NORMS = {"LayerNorm": LayerNorm, "RMSNorm": RmsNorm, "L2": L2Norm}


def test_norms():
    for case in cases("norm"):
        operator, x, out = NORMS[case["kind"]], tensor(case, "x"), tensor(case, "y")
        affine = numerics.norm_affine(
            case["gamma"], case["beta"], out.scale, operator.BITS, "vector"
        )
        np.testing.assert_array_equal(affine.gain, case["gamma_int"])
        np.testing.assert_array_equal(affine.offset, case["beta_int"])
        assert affine.shift == case["shift"]
        op = operator(
            epsilon=numerics.norm_epsilon(case["epsilon"], operator.unit(x.shape[1]), x.scale),
            shift=affine.shift,
            clamp=out.dtype.range,
            gains=normalization.affine_records(affine.gain, affine.offset),
            axis=1,
        )
        np.testing.assert_array_equal(run(op, [case["x"]], [x], out), case["y"])


def test_attention():
    """Scores are given as constants: queries and keys add nothing."""
    for case in cases("attention"):
        v, out = tensor(case, "v"), tensor(case, "y")
        rows, keys = case["x"].shape
        nothing = [TensorType(DType.S8, (n, 1), 1.0, 0) for n in (rows, keys)]
        op = Attention(
            0, 0, 0, 62, 0, 62, *numerics.softmax_multiplier(case["x_scale"]),
            *numerics.multiplier(2.0**-16 * v.scale / out.scale), bias_step=1, bias_batch=(),
            bias_first=(0,), bias=case["x"].astype(np.int16),
        )  # fmt: skip
        zeros = [np.zeros(t.shape, np.int8) for t in nothing]
        y = run(op, [*zeros, case["v"]], [*nothing, v], out)
        np.testing.assert_array_equal(y, case["y"])
