"""An outside witness: Arm's TOSA reference model gives the same bits as our reference.

`make witness` creates the model's own environment and names its interpreter in TOSA_PYTHON.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright import numerics
from tilewright.graph import DType, TensorType
from tilewright.ops.add import Add
from tilewright.ops.conv import Conv
from tilewright.ops.dense import Dense
from tilewright.ops.pool import AveragePool, MaxPool
from tilewright.ops.product import channel_records
from tilewright.ops.reduce import Reduce
from tilewright.ops.table import Table
from tilewright.program.isa import CountRecord

Array = npt.NDArray[Any]
Case = dict[str, Any]

RUNNER = Path(__file__).with_name("tosa_graphs.py")
SEEDS = range(40)


def ask_tosa(cases: list[Case], folder: Path) -> list[Array]:
    """The reference model's results of all cases, in a process of its own."""
    arrays = {f"{i}/{k}": np.asarray(v) for i, case in enumerate(cases) for k, v in case.items()}
    np.savez(folder / "cases.npz", cases=len(cases), **arrays)  # type: ignore[arg-type]
    python = os.environ["TOSA_PYTHON"]
    command = [python, str(RUNNER), str(folder / "cases.npz"), str(folder / "results.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(folder / "results.npz") as results:
        return [results[f"{i}/y"] for i in range(len(cases))]


def s8_view(codes: Array, dtype: DType) -> Array:
    """u8 codes with zero point z are the same numbers as s8 codes with zero point z - 128."""
    return (codes.astype(np.int64) - (128 if dtype is DType.U8 else 0)).astype(np.int8)


class Draw:
    """Random tensors and parameters of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x_dtype = DType(int(self.rng.integers(2)))
        self.y_dtype = DType(int(self.rng.integers(2)))

    def tensor(self, dtype: DType, shape: tuple[int, ...]) -> TensorType:
        lo, hi = dtype.range
        return TensorType(dtype, shape, 1.0, int(self.rng.integers(lo, hi + 1)))

    def codes(self, tensor: TensorType) -> Array:
        lo, hi = tensor.dtype.range
        return self.rng.integers(lo, hi + 1, tensor.shape).astype(tensor.dtype.numpy)

    def rescales(self, count: int, spread: float) -> tuple[Array, Array]:
        """R24 pairs that bring accumulators of size `spread` to a few hundred steps."""
        ratios = 200 / spread * 2.0 ** self.rng.uniform(-2, 1, count)
        return numerics.multipliers(ratios, "witness")

    def output(self, x: TensorType, y: TensorType, m: Array, s: Array) -> Case:
        return {
            "unsigned": y.dtype is DType.U8,
            "zy": y.zero_point,
            "m": m,
            "s": s,
            "shape": y.shape,
            "zx": x.zero_point - (128 if x.dtype is DType.U8 else 0),
        }


def divisible_pads(
    draw: Draw, size: int, kernel: int, stride: int, dilation: int
) -> tuple[int, int]:
    """Padding with which windows end exactly at the border, as TOSA asks."""
    first = int(draw.rng.integers(0, kernel))
    reach = (kernel - 1) * dilation + 1
    return first, -(size + first - reach) % stride


def convolution_case(seed: int, depthwise: bool) -> tuple[Case, Array]:
    draw = Draw(seed)
    rng = draw.rng
    kh, kw, sr, sc, dr, dc = (int(v) for v in rng.integers(1, 4, 6))
    h, w = (int(v) for v in rng.integers(9, 13, 2))
    cin, out = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    if depthwise:
        out = cin
    (top, bottom), (left, right) = (
        divisible_pads(draw, h, kh, sr, dr),
        divisible_pads(draw, w, kw, sc, dc),
    )
    x = draw.tensor(draw.x_dtype, (1, h, w, cin))
    width = 1 if depthwise else cin
    weight = rng.integers(-128, 128, (out, kh, kw, width)).astype(np.int8)
    bias = rng.integers(-5000, 5000, out)
    m, s = draw.rescales(out, 70 * 70 * float(np.sqrt(kh * kw * width)))
    lo, hi = draw.y_dtype.range
    zw = int(rng.integers(-20, 20))
    op = Conv(
        groups=cin if depthwise else 1, stride=(sr, sc), dilation=(dr, dc),
        pads=(top, left, bottom, right), weight_type=DType.S8, weight_zero=zw, pre_shift=0,
        table_multiplier=0, table_shift=0, weight=weight,
        channels=channel_records(bias, m, s, np.full(out, lo), np.full(out, hi)), table=None,
    )  # fmt: skip
    (shape,) = op.infer([x], "witness")
    y = draw.tensor(draw.y_dtype, shape)
    codes = draw.codes(x)
    case = {
        "kind": "depthwise" if depthwise else "conv", "x": s8_view(codes, x.dtype),
        "w": np.moveaxis(weight, 0, 2) if depthwise else weight, "bias": bias, "zw": zw,
        "pads": (top, left, bottom, right), "stride": (sr, sc), "dilation": (dr, dc),
        **draw.output(x, y, m, s),
    }  # fmt: skip
    return case, op.reference([codes], [x], [y])[0]


def matmul_case(seed: int) -> tuple[Case, Array]:
    draw = Draw(seed)
    rows, k, n = (int(v) for v in draw.rng.integers(1, 40, 3))
    x, y = draw.tensor(draw.x_dtype, (1, rows, k)), draw.tensor(draw.y_dtype, (1, rows, n))
    weight = draw.rng.integers(-128, 128, (n, k)).astype(np.int8)
    (m,), (s,) = draw.rescales(1, 70 * 70 * float(np.sqrt(k)))
    lo, hi = y.dtype.range
    full = np.ones(n, np.int64)
    op = Dense(
        weight_type=DType.S8, weight_zero=3, pre_shift=0, table_multiplier=0, table_shift=0,
        weight=weight, channels=channel_records(0 * full, m * full, s * full, lo * full, hi * full),
        table=None,
    )  # fmt: skip
    codes = draw.codes(x)
    case = {"kind": "matmul", "a": s8_view(codes, x.dtype), "b": weight.T[None], "zb": 3}
    case |= draw.output(x, y, m, s)
    case["za"] = case["zx"]
    return case, op.reference([codes], [x], [y])[0]


def rescale_case(seed: int) -> tuple[Case, Array]:
    """R24 alone: shifts up to 55, values near exact halves among them.

    TOSA defines RESCALE for |x| < 2**(shift - 1) only.
    """
    draw = Draw(seed)
    shift = int(draw.rng.integers(10, 56))
    m = int(draw.rng.integers(2**23, 2**24))
    limit = 2 ** min(31, shift + 6)
    x = draw.rng.integers(-limit, limit, 200)
    half = 2**shift // (2 * m)
    near = np.array([k * half + d for k in (-5, -3, -1, 1, 3, 5) for d in (-1, 0, 1)])
    x = np.concatenate([x, np.clip(near, -limit, limit - 1)])
    y = draw.tensor(draw.y_dtype, x.shape)
    case = {
        "kind": "rescale",
        "x": x.astype(np.int32),
        **draw.output(y, y, np.array(m), np.array(shift)),
    }
    return case, numerics.saturate(numerics.r24(x, m, shift) + y.zero_point, *y.dtype.range)


def table_case(seed: int) -> tuple[Case, Array]:
    draw = Draw(seed)
    x = draw.tensor(DType.S8, (1, 50))
    table = draw.rng.integers(-128, 128, 256).astype(np.int8)
    codes = draw.codes(x)
    return {"kind": "table", "x": codes, "table": table}, Table(table).reference([codes], [x], [x])[
        0
    ]


def max_pool_case(seed: int) -> tuple[Case, Array]:
    draw = Draw(seed)
    kernel = int(draw.rng.integers(2, 4))
    stride = int(draw.rng.integers(1, kernel + 1))
    h, w = (int(v) for v in draw.rng.integers(6, 12, 2))
    (top, bottom), (left, right) = (divisible_pads(draw, n, kernel, stride, 1) for n in (h, w))
    x = draw.tensor(DType.S8, (1, h, w, 5))
    unit = numerics.multiplier(1.0)
    op = MaxPool(
        kernel=(kernel, kernel), stride=(stride, stride), dilation=(1, 1),
        pads=(top, left, bottom, right), multiplier=unit.m, shift=unit.shift,
        **({"clamp": (-128, 127)} if "clamp" in MaxPool.attributes() else {}),
    )  # fmt: skip
    (shape,) = op.infer([x], "witness")
    y = TensorType(x.dtype, shape, x.scale, x.zero_point)
    codes = draw.codes(x)
    case = {
        "kind": "max_pool", "x": codes, "shape": shape, "kernel": (kernel, kernel),
        "stride": (stride, stride), "pads": (top, left, bottom, right),
    }  # fmt: skip
    return case, op.reference([codes], [x], [y])[0]


def average_case(seed: int) -> tuple[Case, Array]:
    """A windowed average is a depthwise convolution with weights 1 and a RESCALE."""
    draw = Draw(seed)
    kernel = int(draw.rng.integers(2, 4))
    x = draw.tensor(draw.x_dtype, (1, 3 * kernel, 2 * kernel, 5))
    m, s = numerics.multipliers([2.0 ** draw.rng.uniform(-1, 1) / kernel**2], "witness")
    counts = np.zeros(1, CountRecord.numpy_dtype())
    counts["count"], counts["multiplier"], counts["shift"] = kernel**2, m, s
    lo, hi = draw.y_dtype.range
    op = AveragePool(
        kernel=(kernel, kernel), stride=(kernel, kernel), dilation=(1, 1), pads=(0, 0, 0, 0),
        counted=(0, x.shape[1], 0, x.shape[2]), clamp=(lo, hi), counts=counts,
    )  # fmt: skip
    (shape,) = op.infer([x], "witness")
    y = draw.tensor(draw.y_dtype, shape)
    codes = draw.codes(x)
    case = {
        "kind": "depthwise", "x": s8_view(codes, x.dtype),
        "w": np.ones((kernel, kernel, 5, 1), np.int8), "bias": np.zeros(5, np.int64), "zw": 0,
        "pads": (0, 0, 0, 0), "stride": (kernel, kernel), "dilation": (1, 1),
        **draw.output(x, y, m, s),
    }  # fmt: skip
    return case, op.reference([codes], [x], [y])[0]


def global_average_case(seed: int) -> tuple[Case, Array]:
    draw = Draw(seed)
    h, w = (int(v) for v in draw.rng.integers(1, 15, 2))
    x, y = draw.tensor(draw.x_dtype, (1, h, w, 6)), draw.tensor(draw.y_dtype, (1, 1, 1, 6))
    (m,), (s,) = numerics.multipliers([2.0 ** draw.rng.uniform(-1, 1) / (h * w)], "witness")
    op = Reduce(axes=(1, 3), pre_shift=0, multiplier=int(m), shift=int(s), clamp=y.dtype.range)
    codes = draw.codes(x)
    case = {"kind": "global_average", "x": s8_view(codes, x.dtype), **draw.output(x, y, m, s)}
    return case, op.reference([codes], [x], [y])[0]


def add_case(seed: int) -> tuple[Case, Array]:
    draw = Draw(seed)
    a, b = draw.tensor(draw.x_dtype, (1, 60)), draw.tensor(draw.x_dtype, (1, 60))
    y = draw.tensor(DType.S8, (1, 60))
    sa, sb = 2.0 ** draw.rng.uniform(-3, 1, 2)
    p = numerics.add_parameters(sa, sb, 1.0, False, "witness")
    op = Add(ma=p.ma, mb=p.mb, shift=p.shift, lo=-128, hi=127)
    ca, cb = draw.codes(a), draw.codes(b)
    shift = 128 if draw.x_dtype is DType.U8 else 0
    case = {
        "kind": "add", "a": s8_view(ca, a.dtype), "b": s8_view(cb, b.dtype),
        "za": a.zero_point - shift, "zb": b.zero_point - shift, "ma": p.ma, "mb": p.mb,
        "s": p.shift, "zy": y.zero_point,
    }  # fmt: skip
    return case, op.reference([ca, cb], [a, b], [y])[0]


MAKERS = {
    "conv": lambda seed: convolution_case(seed, depthwise=False),
    "depthwise": lambda seed: convolution_case(seed, depthwise=True),
    "matmul": matmul_case,
    "rescale": rescale_case,
    "table": table_case,
    "max_pool": max_pool_case,
    "average": average_case,
    "global_average": global_average_case,
    "add": add_case,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_same_bits_as_the_tosa_reference_model(kind: str, tmp_path: Path) -> None:
    cases, expected = zip(*(MAKERS[kind](seed) for seed in SEEDS), strict=True)
    results = ask_tosa(list(cases), tmp_path)
    for seed, want, got in zip(SEEDS, expected, results, strict=True):
        unsigned = bool(cases[seed].get("unsigned", False))
        values = got.view(np.uint8) if unsigned else got
        assert np.array_equal(values.astype(np.int64), want.astype(np.int64)), f"{kind} {seed}"
