"""Exact integer arithmetic, one element at a time, and the writer of vector files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

RANGE = {"u8": (0, 255), "s8": (-128, 127), "s16": (-32767, 32767)}
DTYPE = {"u8": np.uint8, "s8": np.int8, "s16": np.int16}


def rne(v: float | Fraction) -> int:
    """Round an exact or float64 value half to even."""
    return round(Fraction(v))


def multiplier(r: float, bits: int = 24) -> tuple[int, int]:
    m, e = math.frexp(r)
    big_m = rne(Fraction(m) * 2**bits)
    if big_m == 2**bits:
        big_m, e = big_m // 2, e + 1
    s = bits - e
    if s > 62:
        return 0, 62
    if s < 2:
        raise ValueError(f"ratio {r} too large")
    return big_m, s


def r24(x: int, ms: tuple[int, int]) -> int:
    m, s = ms
    assert abs(x) < 2**38
    return (x * m + (1 << (s - 1))) >> s


def sat(v: int, lo: int, hi: int) -> int:
    return min(max(v, lo), hi)


def f32(v: float) -> float:
    return float(np.float32(v))


class Writer:
    """Collects the arrays of one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.arrays: dict[str, np.ndarray] = {}

    def case(self, **arrays) -> None:
        for key, value in arrays.items():
            self.arrays[f"{self.count}/{key}"] = np.asarray(value)
        self.count += 1

    def close(self) -> None:
        self.arrays["cases"] = np.asarray(self.count)
        np.savez_compressed(self.path, **self.arrays)


def types(
    rng: np.random.Generator, names: Sequence[str] = ("u8", "s8")
) -> tuple[str, int, int, int]:
    t = names[rng.integers(len(names))]
    lo, hi = RANGE[t]
    zp = 0 if t == "s16" else int(rng.integers(lo, hi + 1))
    return t, lo, hi, zp


def scale(rng: np.random.Generator, low: float = -9.0, high: float = 1.0) -> float:
    return f32(2.0 ** rng.uniform(low, high))
