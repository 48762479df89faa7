"""Vectors of Add, Sub, Mul, tables and averages."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from exact import DTYPE, Writer, f32, multiplier, r24, rne, sat, scale, types


def add_parameters(sa: float, sb: float, sy: float, wide: bool) -> tuple[int, int, int]:
    _, e = math.frexp(max(sa / sy, sb / sy))
    s = min(24 - e, 40) if wide else min(21 - e, 30)
    return rne(sa / sy * 2.0**s), rne(sb / sy * 2.0**s), s


def elementwise_cases(out: Path) -> None:
    rng = np.random.default_rng(6)
    w = Writer(out / "add_sub.npz")
    for i in range(80):
        names = ("u8", "s8") if i % 3 else ("u8", "s8", "s16")
        ta, alo, ahi, za = types(rng, names)
        tb, blo, bhi, zb = types(rng, names)
        ty, ylo, yhi, zy = types(rng, names)
        sa, sb = scale(rng, -9, 0), scale(rng, -9, 0)
        sy = f32(max(sa * (ahi - alo), sb * (bhi - blo)) / (yhi - ylo) * 2 ** rng.uniform(-1, 1))
        wide = "s16" in (ta, tb, ty)
        ma, mb, s = add_parameters(sa, sb, sy, wide)
        sign = 1 if i % 2 == 0 else -1
        a = rng.integers(alo, ahi + 1, 64)
        b = rng.integers(blo, bhi + 1, 64)
        a[:4], b[:4] = [alo, ahi, alo, ahi], [blo, bhi, bhi, blo]
        ys = [
            sat(
                ((ma * (int(u) - za) + sign * mb * (int(v) - zb) + (1 << (s - 1))) >> s) + zy,
                ylo,
                yhi,
            )
            for u, v in zip(a, b, strict=True)
        ]
        w.case(
            op="Add" if sign > 0 else "Sub",
            a_type=ta,
            b_type=tb,
            y_type=ty,
            a=a.astype(DTYPE[ta]),
            b=b.astype(DTYPE[tb]),
            a_scale=np.float32(sa),
            b_scale=np.float32(sb),
            y_scale=np.float32(sy),
            a_zero_point=za,
            b_zero_point=zb,
            y_zero_point=zy,
            multipliers=[ma, mb],
            shift=s,
            y=np.array(ys, DTYPE[ty]),
        )
    w.close()
    w = Writer(out / "add_constant.npz")
    for i in range(40):
        names = ("u8", "s8") if i % 3 else ("u8", "s8", "s16")
        ta, alo, ahi, za = types(rng, names)
        ty, ylo, yhi, zy = types(rng, names)
        sa = scale(rng, -9, 0)
        sy = f32(sa * (ahi - alo) / (yhi - ylo) * 2 ** rng.uniform(-1, 2))
        wide = "s16" in (ta, ty)
        _, e = math.frexp(sa / sy)
        s = min(24 - e, 40) if wide else min(21 - e, 21)
        ma = rne(sa / sy * 2.0**s)
        a = rng.integers(alo, ahi + 1, 64)
        c = rng.normal(0, sy * (yhi - ylo) / 3, 64).astype(np.float32)
        c[:6] = [0, -10000, -65504, -3.4e38, np.finfo(np.float32).max, -1e-30]
        reach = 131071 if ty == "s16" else 511
        cs = [rne(Fraction(min(max(float(v) / sy, -reach), reach)) * 2**s) for v in c]
        ys = [
            sat(((ma * (int(u) - za) + k + (1 << (s - 1))) >> s) + zy, ylo, yhi)
            for u, k in zip(a, cs, strict=True)
        ]
        w.case(
            a_type=ta,
            y_type=ty,
            a=a.astype(DTYPE[ta]),
            c=c,
            a_scale=np.float32(sa),
            y_scale=np.float32(sy),
            a_zero_point=za,
            y_zero_point=zy,
            multiplier=ma,
            c_int=np.array(cs, np.int64),
            shift=s,
            y=np.array(ys, DTYPE[ty]),
        )
    w.close()
    w = Writer(out / "mul.npz")
    for i in range(60):
        names = ("u8", "s8") if i % 3 else ("u8", "s8", "s16")
        ta, alo, ahi, za = types(rng, names)
        tb, blo, bhi, zb = types(rng, names)
        ty, ylo, yhi, zy = types(rng, names)
        sa, sb = scale(rng, -9, 0), scale(rng, -9, 0)
        sy = f32(sa * (ahi - alo) * sb * (bhi - blo) / (yhi - ylo) * 2 ** rng.uniform(-3, 0))
        ms = multiplier(sa * sb / sy)
        a = rng.integers(alo, ahi + 1, 64)
        b = rng.integers(blo, bhi + 1, 64)
        ys = [
            sat(r24((int(u) - za) * (int(v) - zb), ms) + zy, ylo, yhi)
            for u, v in zip(a, b, strict=True)
        ]
        w.case(
            a_type=ta,
            b_type=tb,
            y_type=ty,
            a=a.astype(DTYPE[ta]),
            b=b.astype(DTYPE[tb]),
            a_scale=np.float32(sa),
            b_scale=np.float32(sb),
            y_scale=np.float32(sy),
            a_zero_point=za,
            b_zero_point=zb,
            y_zero_point=zy,
            y=np.array(ys, DTYPE[ty]),
        )
    w.close()


FUNCTIONS = {
    "Sigmoid": lambda v: 1 / (1 + math.exp(-v)) if v > -700 else 0.0,
    "Tanh": math.tanh,
    "Gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
    "HardSwish": lambda v: v * min(max(v / 6 + 0.5, 0.0), 1.0),
    "Silu": lambda v: v / (1 + math.exp(-v)) if v > -700 else 0.0,
    "LeakyRelu": lambda v: v if v >= 0 else 0.01 * v,
    "Exp": lambda v: math.exp(min(v, 60.0)),
}


def table_cases(out: Path) -> None:
    w = Writer(out / "table.npz")
    rng = np.random.default_rng(7)
    for i, name in enumerate(list(FUNCTIONS) * 8):
        f = FUNCTIONS[name]
        wide = i % 2 == 1
        tx, xlo, xhi, zx = types(rng, ("s16",) if wide else ("u8", "s8"))
        ty, ylo, yhi, zy = types(rng, ("u8", "s8", "s16"))
        sx = f32(2 * rng.uniform(1.5, 8) / (xhi - xlo))
        values = [f(sx * (q - zx)) for q in range(xlo, xhi + 1, 128 if wide else 1)]
        sy = f32((max(values) - min(min(values), 0)) / (yhi - ylo) * (2 if ty == "s16" else 1.0))
        x = (
            np.arange(xlo, xhi + 1)
            if not wide
            else np.concatenate([[xlo, xhi, 0, -1, 1, 127, 128], rng.integers(xlo, xhi + 1, 200)])
        )
        if not wide:
            table = [sat(rne(f(sx * (q - zx)) / sy) + zy, ylo, yhi) for q in range(xlo, xhi + 1)]
            ys = [table[int(q) - xlo] for q in x]
            w.case(
                op=name,
                x_type=tx,
                y_type=ty,
                x=x.astype(DTYPE[tx]),
                x_scale=np.float32(sx),
                x_zero_point=zx,
                y_scale=np.float32(sy),
                y_zero_point=zy,
                table=np.array(table, DTYPE[ty]),
                y=np.array(ys, DTYPE[ty]),
            )
            continue
        points = [f(sx * (-32768 + 128 * j)) for j in range(513)]
        st = sy if ty == "s16" else max(abs(v) for v in points) / 32767
        table = [sat(rne(v / st), -32767, 32767) for v in points]
        ms = multiplier(st / (128 * sy))
        ys = []
        for q in x:
            j, frac = (int(q) >> 7) + 256, int(q) & 127
            v = 128 * table[j] + (table[j + 1] - table[j]) * frac
            ys.append(sat(r24(v, ms) + zy, ylo, yhi))
        w.case(
            op=name,
            x_type=tx,
            y_type=ty,
            x=x.astype(DTYPE[tx]),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            table=np.array(table, np.int16),
            y=np.array(ys, DTYPE[ty]),
        )
    w.close()


def pool_cases(out: Path) -> None:
    w = Writer(out / "average.npz")
    rng = np.random.default_rng(8)
    for _ in range(40):
        tx, xlo, xhi, zx = types(rng, ("u8", "s8", "s16"))
        ty, ylo, yhi, zy = types(rng, ("s16",) if tx == "s16" else ("u8", "s8"))
        count = int(rng.choice([1, 2, 4, 9, 49, 64, 100, 196]))
        sx = scale(rng, -9, -2)
        sy = f32(sx * 2 ** rng.uniform(-1, 1))
        x = rng.integers(xlo, xhi + 1, (24, count))
        ms = multiplier(sx / (sy * count))
        ys = [sat(r24(sum(int(q) - zx for q in row), ms) + zy, ylo, yhi) for row in x]
        w.case(
            x_type=tx,
            y_type=ty,
            x=x.astype(DTYPE[tx]),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            y=np.array(ys, DTYPE[ty]),
        )
    w.close()
