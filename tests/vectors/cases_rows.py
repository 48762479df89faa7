"""Vectors of operators over rows: Softmax, fused attention and the normalisations."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from exact import DTYPE, RANGE, Writer, f32, multiplier, r24, rne, sat, scale, types

EXP2 = [rne(2.0 ** (23 - i / 256)) for i in range(257)]


def distance(y: list[list[int]], real: np.ndarray, sy: float, zy: int, lo: int, hi: int) -> float:
    """The largest distance between codes and reals, in output steps."""
    return float(np.abs((np.array(y) - zy) - np.clip(real / sy, lo - zy, hi - zy)).max())


def exponentials(row: list[int], sx: float) -> list[int]:
    ms = multiplier(min(sx * math.log2(math.e), 32.0) * 2**16)
    top = max(row)
    es = []
    for q in row:
        t = r24(top - q, ms)
        n, f = t >> 16, t & 65535
        i, g = f >> 8, f & 255
        p = EXP2[i] - (((EXP2[i] - EXP2[i + 1]) * g + 128) >> 8)
        es.append(0 if n > 31 else (p + ((1 << n) >> 1)) >> n)
    return es


def softmax_row(row: list[int], sx: float, sy: float, zy: int, lo: int, hi: int) -> list[int]:
    es = exponentials(row, sx)
    r = 2**53 // sum(es)
    out_ms = multiplier(2.0**-24 / sy)
    return [sat(r24((e * r + (1 << 28)) >> 29, out_ms) + zy, lo, hi) for e in es]


def softmax_cases(out: Path) -> None:
    w = Writer(out / "softmax.npz")
    rng = np.random.default_rng(9)
    for i in range(80):
        tx, xlo, xhi, zx = types(rng, ("u8", "s8", "s16"))
        ty = ("u8", "s8", "s16")[int(rng.integers(3))]
        ylo, yhi = RANGE[ty]
        sy = {"u8": 2.0**-8, "s8": 2.0**-8, "s16": 2.0**-15}[ty]
        zy = {"u8": 0, "s8": -128, "s16": 0}[ty]
        if i % 9 == 8:
            sy = f32(sy * 1.1)
        n = int(rng.choice([1, 2, 7, 49, 64, 197, 1000]))
        sx = f32(rng.uniform(2, 30) / (xhi - xlo))
        if i % 13 == 12:
            sx = f32(78.0)  # a mask's scale
        mode = i % 3
        rows = (
            rng.integers(xlo, xhi + 1, (3, n))
            if mode
            else np.clip(rng.normal(zx, (xhi - xlo) / 12, (3, n)).round(), xlo, xhi).astype(
                np.int64
            )
        )
        y = [softmax_row([int(q) for q in row], sx, sy, zy, ylo, yhi) for row in rows]
        real = np.exp((rows - rows.max(1, keepdims=True)) * float(sx))
        real /= real.sum(1, keepdims=True)
        if i % 9 != 8:
            assert distance(y, real, sy, zy, ylo, yhi) < 0.51
        w.case(
            x_type=tx,
            y_type=ty,
            x=rows.astype(DTYPE[tx]),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            y=np.array(y, DTYPE[ty]),
        )
    w.close()


def attention_cases(out: Path) -> None:
    w = Writer(out / "attention.npz")
    rng = np.random.default_rng(12)
    for _ in range(40):
        tx, xlo, xhi, zx = types(rng, ("u8", "s8", "s16"))
        tv, vlo, vhi, zv = types(rng, ("u8", "s8"))
        ty, ylo, yhi, zy = types(rng, ("u8", "s8", "s16"))
        n, d = int(rng.choice([1, 7, 49, 197, 256])), 4
        sx, sv = f32(rng.uniform(2, 30) / (xhi - xlo)), scale(rng, -8, -3)
        sy = f32(sv * (vhi - vlo) / (yhi - ylo) * 2 ** rng.uniform(-2, 0))
        rows = np.clip(rng.normal(zx, (xhi - xlo) / 8, (3, n)).round(), xlo, xhi).astype(np.int64)
        v = np.clip(rng.normal(zv, (vhi - vlo) / 6, (n, d)).round(), vlo, vhi).astype(np.int64)
        ms = multiplier(2.0**-16 * sv / sy)
        y = []
        for row in rows:
            p = [(255 * e + (1 << 22)) >> 23 for e in exponentials([int(q) for q in row], sx)]
            r = 2**39 // sum(p)
            acc = [sum(p[j] * (int(v[j, c]) - zv) for j in range(n)) for c in range(d)]
            y.append([sat(r24((a * r + (1 << 22)) >> 23, ms) + zy, ylo, yhi) for a in acc])
        real = np.exp((rows - rows.max(1, keepdims=True)) * float(sx))
        real = real / real.sum(1, keepdims=True) @ ((v - zv) * float(sv))
        assert distance(y, real, sy, zy, ylo, yhi) * sy < sv
        w.case(
            x_type=tx,
            v_type=tv,
            y_type=ty,
            x=rows.astype(DTYPE[tx]),
            v=v.astype(DTYPE[tv]),
            x_scale=np.float32(sx),
            v_scale=np.float32(sv),
            y_scale=np.float32(sy),
            x_zero_point=zx,
            v_zero_point=zv,
            y_zero_point=zy,
            y=np.array(y, DTYPE[ty]),
        )
    w.close()


def norm_parameters(gamma, beta, sy, q=16):
    top = max(abs(float(g)) for g in gamma)
    if top == 0:
        s, gs = 20, [0] * len(gamma)
    else:
        _, e = math.frexp(top / (sy * 2**q))
        s = min(24 - e, 44)
        while max(abs(rne(Fraction(float(b) / sy) * 2**s)) for b in beta) >= 2**52:
            s -= 1
        gs = [rne(Fraction(float(g) / (sy * 2**q)) * 2**s) for g in gamma]
    return gs, [rne(Fraction(float(b) / sy) * 2**s) for b in beta], s


def norm_row(kind, row, z, sx, eps, gs, bs, s, zy, lo, hi):
    c = len(row)
    if kind == "LayerNorm":
        s1, s2 = sum(row), sum(q * q for q in row)
        d, v, unit = [c * q - s1 for q in row], c * s2 - s1 * s1, c
    elif kind == "RMSNorm":
        d, v, unit = [c * (q - z) for q in row], c * sum((q - z) ** 2 for q in row), c
    else:
        d, v, unit = [q - z for q in row], sum((q - z) ** 2 for q in row), 1
    big_w = v + min(rne(Fraction(eps) * unit**2 / Fraction(sx) ** 2), 2**60)
    assert 0 <= big_w < 2**62
    if big_w == 0:
        ns = [0] * c
    else:
        k = 0
        while big_w << k < 2**60:
            k += 2
        r = 2**61 // math.isqrt(big_w << k)
        h = (37 if kind == "L2" else 45) - k // 2
        ns = [(v * r + (1 << (h - 1))) >> h for v in d]
    return [
        sat(((n * g + b + (1 << (s - 1))) >> s) + zy, lo, hi)
        for n, g, b in zip(ns, gs, bs, strict=True)
    ]


def norm_cases(out: Path) -> None:
    w = Writer(out / "norm.npz")
    rng = np.random.default_rng(10)
    for i in range(90):
        kind = ("LayerNorm", "RMSNorm", "L2")[i % 3]
        tx, xlo, xhi, zx = types(rng, ("u8", "s8", "s16"))
        ty, ylo, yhi, zy = types(rng, ("u8", "s8", "s16"))
        c = int(rng.choice([1, 2, 8, 96, 192, 384, 768, 1000]))
        sx = scale(rng, -9, -2) if tx != "s16" else scale(rng, -16, -9)
        eps = float(rng.choice([1e-5, 1e-6, 1e-12, 0.0]))
        gamma = rng.lognormal(0, 0.5, c) * rng.choice([-1, 1, 1, 1], c)
        beta = rng.normal(0, 0.7, c)
        if kind == "L2":
            gamma, beta = np.ones(c), np.zeros(c)
        elif i % 17 == 16:
            gamma = np.zeros(c)
        gamma, beta = gamma.astype(np.float32), beta.astype(np.float32)
        amp = 6.0 if kind != "L2" else 1.0
        sy = f32(max(float(np.abs(gamma).max()), 0.2) * amp / (yhi - ylo) * 2)
        rows = np.clip(
            rng.normal(rng.integers(xlo, xhi), (xhi - xlo) / 10, (3, c)).round(), xlo, xhi
        ).astype(np.int64)
        if i % 11 == 10:
            rows[1] = rows[1, 0]  # a constant row
        gs, bs, s = norm_parameters(gamma, beta, sy, 24 if kind == "L2" else 16)
        y = [
            norm_row(kind, [int(q) for q in row], zx, sx, eps, gs, bs, s, zy, ylo, yhi)
            for row in rows
        ]
        real = (rows - zx) * float(sx)
        if kind == "LayerNorm":
            real = real - real.mean(1, keepdims=True)
        power = (
            (real**2).mean(1, keepdims=True) if kind != "L2" else (real**2).sum(1, keepdims=True)
        )
        with np.errstate(all="ignore"):
            real = np.nan_to_num(real / np.sqrt(power + eps)) * gamma + beta
        assert distance(y, real, sy, zy, ylo, yhi) < 0.52
        w.case(
            kind=kind,
            x_type=tx,
            y_type=ty,
            x=rows.astype(DTYPE[tx]),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            epsilon=np.float64(eps),
            gamma=gamma,
            beta=beta,
            gamma_int=np.array(gs, np.int64),
            beta_int=np.array(bs, np.int64),
            shift=s,
            y=np.array(y, DTYPE[ty]),
        )
    w.close()
