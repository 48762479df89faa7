"""Vectors of linear resizing."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from exact import DTYPE, Writer, f32, multiplier, r24, rne, sat, scale, types


def taps(mode: str, n_in: int, n_out: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Index and Q11 coefficient of the two taps of each output."""
    rows = []
    for o in range(n_out):
        sc = Fraction(n_out, n_in)
        if mode == "align_corners":
            pos = Fraction(o * (n_in - 1), n_out - 1) if n_out > 1 else Fraction(0)
        elif mode == "asymmetric":
            pos = o / sc
        elif mode == "pytorch_half_pixel" and n_out == 1:
            pos = Fraction(0)
        else:
            pos = (o + Fraction(1, 2)) / sc - Fraction(1, 2)
        i0 = math.floor(pos)
        fr = pos - i0
        # positions outside take the nearest edge element
        a, b = min(max(i0, 0), n_in - 1), min(max(i0 + 1, 0), n_in - 1)
        ca, cb = rne((1 - fr) * 2048), rne(fr * 2048)
        if ca + cb != 2048:
            if ca >= cb:
                ca += 2048 - ca - cb
            else:
                cb += 2048 - ca - cb
        rows.append(((a, ca), (b, cb)))
    return rows


def resize_cases(out: Path) -> None:
    w = Writer(out / "resize_linear.npz")
    rng = np.random.default_rng(11)
    for i in range(24):
        mode = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")[i % 4]
        tx, xlo, xhi, zx = types(rng, ("u8", "s8"))
        h, wd = (int(v) for v in rng.integers(2, 9, 2))
        oh, ow = (int(v) for v in rng.integers(2, 19, 2))
        sx = scale(rng, -9, -2)
        sy = f32(sx * 2 ** rng.uniform(-0.3, 0.3)) if i % 2 else sx
        zy = zx if i % 2 == 0 else int(rng.integers(xlo, xhi + 1))
        x = rng.integers(xlo, xhi + 1, (h, wd))
        ty_, tx_ = taps(mode, h, oh), taps(mode, wd, ow)
        ms = multiplier(sx / (sy * 2.0**22))
        y = np.zeros((oh, ow), np.int64)
        for r in range(oh):
            for c in range(ow):
                acc = sum(cy * cx * (int(x[a, b]) - zx) for a, cy in ty_[r] for b, cx in tx_[c])
                y[r, c] = sat(r24(acc, ms) + zy, xlo, xhi)
        w.case(
            mode=mode,
            type=tx,
            x=x.astype(DTYPE[tx]),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            y=y.astype(DTYPE[tx]),
        )
    w.close()
