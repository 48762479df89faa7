"""Vectors of convolutions and matrix products."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from exact import DTYPE, RANGE, Writer, f32, multiplier, r24, rne, sat, scale, types


def conv_cases(out: Path) -> None:
    w = Writer(out / "conv2d.npz")
    rng = np.random.default_rng(4)
    for i in range(60):
        wide = i % 5 == 4
        tx, xlo, xhi, zx = types(rng, ("s16",) if wide else ("u8", "s8"))
        ty, ylo, yhi, zy = types(rng, ("s16", "u8", "s8") if wide else ("u8", "s8"))
        group = int(rng.choice([1, 1, 2, 4]))
        depthwise = i % 6 == 5
        cin = int(rng.integers(1, 5)) * group
        cout = int(rng.integers(1, 5)) * group
        if depthwise:
            group = cin
            cout = cin * int(rng.integers(1, 3))
        kh, kw = (int(v) for v in rng.integers(1, 4, 2))
        stride = [int(v) for v in rng.integers(1, 3, 2)]
        dil = [int(v) for v in rng.integers(1, 3, 2)]
        pads = [int(v) for v in rng.integers(0, 3, 4)]  # ONNX order: top, left, bottom, right
        h = int(rng.integers((kh - 1) * dil[0] + 1, 10))
        wd = int(rng.integers((kw - 1) * dil[1] + 1, 10))
        x = rng.integers(xlo, xhi + 1, (1, cin, h, wd))
        asym = (not wide) and i % 7 == 3
        per_channel = not asym and i % 2 == 0
        zw = int(rng.integers(0, 256)) if asym else 0
        wt = "u8" if asym else "s8"
        weight = (
            rng.integers(0, 256, (cout, cin // group, kh, kw))
            if asym
            else rng.integers(-127, 128, (cout, cin // group, kh, kw))
        )
        sx = scale(rng, -16 if wide else -9, -8 if wide else 1)
        sw = np.array([scale(rng, -10, -3) for _ in range(cout if per_channel else 1)], np.float32)
        k = cin // group * kh * kw
        real = sx * float(np.mean(sw)) * 70 * (3000 if wide else 70) * math.sqrt(k)
        sy = f32(real * 2 / (yhi - ylo) * 2 ** rng.uniform(-0.5, 1))
        bias_f = rng.normal(0, real / 4, cout).astype(np.float32)
        lo, hi = ylo, yhi
        if i % 3 == 1:  # a fused clamp
            lo, hi = max(ylo, zy), min(yhi, zy + (yhi - ylo) // 3)
            if lo >= hi:
                lo, hi = ylo, yhi
        oh = (h + pads[0] + pads[2] - (kh - 1) * dil[0] - 1) // stride[0] + 1
        ow = (wd + pads[1] + pads[3] - (kw - 1) * dil[1] - 1) // stride[1] + 1
        y = np.zeros((1, cout, oh, ow), np.int64)
        bias = []
        for c in range(cout):
            swc = float(sw[c if per_channel else 0])
            limit = 2**46 if wide else 2**30
            b = sat(rne(float(bias_f[c]) / (sx * swc)), -limit, limit)
            bias.append(b)
            ms = multiplier(sx * swc / sy)
            g = c // (cout // group)
            for a in range(oh):
                for d in range(ow):
                    acc = b
                    for ci in range(cin // group):
                        for u in range(kh):
                            for v in range(kw):
                                yy = a * stride[0] + u * dil[0] - pads[0]
                                xx = d * stride[1] + v * dil[1] - pads[1]
                                if 0 <= yy < h and 0 <= xx < wd:
                                    acc += (int(x[0, g * (cin // group) + ci, yy, xx]) - zx) * (
                                        int(weight[c, ci, u, v]) - zw
                                    )
                    y[0, c, a, d] = sat(r24(acc, ms) + zy, lo, hi)
        w.case(
            x_type=tx,
            y_type=ty,
            w_type=wt,
            x=x.astype(DTYPE[tx]),
            w=weight.astype(DTYPE[wt]),
            bias_float=bias_f,
            bias=np.array(bias, np.int64),
            x_scale=np.float32(sx),
            x_zero_point=zx,
            w_scale=sw,
            w_zero_point=zw,
            y_scale=np.float32(sy),
            y_zero_point=zy,
            clamp=np.array([lo, hi]),
            group=group,
            strides=stride,
            dilations=dil,
            pads=pads,
            y=y.astype(DTYPE[ty]),
        )
    w.close()


def matmul_cases(out: Path) -> None:
    w = Writer(out / "matmul.npz")
    rng = np.random.default_rng(5)
    for i in range(50):
        pair = [
            ("u8", "s8"),
            ("u8", "u8"),
            ("s8", "s8"),
            ("s16", "s8"),
            ("s16", "s16"),
            ("u8", "s16"),
        ][i % 6]
        wide = "s16" in pair
        za = 0 if pair[0] == "s16" else int(rng.integers(*RANGE[pair[0]]))
        zb = 0 if pair[1] == "s16" else int(rng.integers(*RANGE[pair[1]]))
        ty, ylo, yhi, zy = types(rng, ("u8", "s8", "s16"))
        m, k, n = (int(v) for v in rng.integers(1, 24, 3))
        if i % 6 == 4 and i % 4 == 0:  # long sums of 16-bit products: a pre-shift
            m, k, n = 2, int(rng.integers(768, 3000)), 3
        a = rng.integers(RANGE[pair[0]][0], RANGE[pair[0]][1] + 1, (m, k))
        b = rng.integers(RANGE[pair[1]][0], RANGE[pair[1]][1] + 1, (k, n))
        sa, sb = scale(rng, -12, -4), scale(rng, -12, -4)
        amp = (
            (19000 if pair[0] == "s16" else 90) * (19000 if pair[1] == "s16" else 90) * math.sqrt(k)
        )
        sy = f32(sa * sb * amp * 4 / (yhi - ylo))
        reach = [
            32767 if t == "s16" else max(z - RANGE[t][0], RANGE[t][1] - z)
            for t, z in zip(pair, (za, zb), strict=True)
        ]
        p = max(0, (k * reach[0] * reach[1] + 2**8).bit_length() - 38) if wide else 0
        ms = multiplier(sa * sb / sy * 2**p)
        y = np.zeros((m, n), np.int64)
        for r in range(m):
            for c in range(n):
                acc = sum((int(a[r, j]) - za) * (int(b[j, c]) - zb) for j in range(k))
                acc = (acc + (1 << (p - 1))) >> p if p else acc
                y[r, c] = sat(r24(acc, ms) + zy, ylo, yhi)
        w.case(
            a_type=pair[0],
            b_type=pair[1],
            y_type=ty,
            a=a.astype(DTYPE[pair[0]]),
            b=b.astype(DTYPE[pair[1]]),
            a_scale=np.float32(sa),
            b_scale=np.float32(sb),
            y_scale=np.float32(sy),
            a_zero_point=za,
            b_zero_point=zb,
            y_zero_point=zy,
            pre_shift=p,
            y=y.astype(DTYPE[ty]),
        )
    w.close()
