"""Vectors of R24, with and without a pre-shift, and of the float borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from exact import DTYPE, Writer, f32, multiplier, r24, rne, sat, scale, types


def rescale_cases(out: Path) -> None:
    w = Writer(out / "rescale.npz")
    rng = np.random.default_rng(1)
    for i in range(400):
        r = 2.0 ** rng.uniform(-39, 21.9)
        if i % 4 == 0:
            r = f32(r)
        if i % 10 == 0:
            r = 2.0 ** int(rng.integers(-38, 21))
        m, s = multiplier(r)
        limit = min(2**31 - 1, 2**38 - 1)
        xs = [0, 1, -1, limit, -limit] + [int(v) for v in rng.integers(-limit, limit + 1, 20)]
        span = max(int(400 / r), 2)
        span = min(span, limit)
        xs += [int(v) for v in rng.integers(-span, span + 1, 30)]
        half = (2**s) // (2 * m) if m else 0  # near exact halves
        xs += [
            v
            for k in (-3, -1, 1, 3, 5)
            for v in (k * half - 1, k * half, k * half + 1)
            if abs(v) <= limit
        ]
        w.case(
            ratio=np.float64(r),
            multiplier=np.int64(m),
            shift=np.int64(s),
            x=np.array(xs, np.int64),
            y=np.array([r24(x, (m, s)) for x in xs], np.int64),
        )
    w.close()


def wide_cases(out: Path) -> None:
    w = Writer(out / "rescale_wide.npz")
    rng = np.random.default_rng(2)
    for _ in range(100):
        p = int(rng.integers(0, 9))
        r = 2.0 ** rng.uniform(-38, -8)
        xs = [int(v) for v in rng.integers(-(2**38 - 1) << p, (2**38 - 1) << p, 40)]
        ms = multiplier(r * 2**p)
        ys = [r24((x + (1 << (p - 1))) >> p if p else x, ms) for x in xs]
        w.case(
            ratio=np.float64(r),
            pre_shift=p,
            multiplier=ms[0],
            shift=ms[1],
            x=np.array(xs, np.int64),
            y=np.array(ys, np.int64),
        )
    w.close()


def quantize_cases(out: Path) -> None:
    w = Writer(out / "quantize.npz")
    rng = np.random.default_rng(3)
    for _ in range(60):
        t, lo, hi, zp = types(rng, ("u8", "s8", "s16"))
        s = scale(rng)
        x = (rng.normal(0, (hi - lo) * s / 3, 60)).astype(np.float32)
        x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5 * s, 1.5 * s, -0.5 * s]
        ys = []
        for v in x:
            if np.isnan(v):
                ys.append(zp)
            elif np.isinf(v):
                ys.append(hi if v > 0 else lo)
            else:
                ys.append(sat(rne(float(np.float32(v) / np.float32(s))) + zp, lo, hi))
        y = np.array(ys, DTYPE[t])
        back = np.array([np.float32(int(q) - zp) * np.float32(s) for q in ys], np.float32)
        w.case(type=t, scale=np.float32(s), zero_point=zp, x=x, y=y, dequantized=back)
    w.close()
