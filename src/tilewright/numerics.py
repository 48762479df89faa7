"""R24, the integer arithmetic: formulas as pure functions.

What is here is shared by everything that happens at compile time (multipliers, tables, ranges to
scales) and by the reference executor.  The simulated machine and the C runtime have formulas of
their own; the golden vectors in `tests/vectors` hold all of them together.  The contract in words
is `docs/arithmetic.md`; section numbers below refer to it.

Compile-time reals are float64 and scalar `math`, never NumPy transcendentals, whose last bits
differ between processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.errors import QuantizationError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

MULTIPLIER_BITS = 24
MAX_SHIFT = 62
R24_LIMIT = 2**38
"""R24 takes |x| below this (section 2)."""


def rne(value: float | Fraction) -> int:
    """Round half to even, exactly."""
    return round(Fraction(value))


def f32(value: float) -> float:
    """The nearest float32, as a Python float."""
    return float(np.float32(value))


class Multiplier(NamedTuple):
    """A real ratio as `m * 2**-shift`; `m` carries the sign (section 2)."""

    m: int
    shift: int


def multiplier(ratio: float, where: str = "rescale") -> Multiplier:
    """Turn a real ratio into a 24-bit multiplier and a shift of 2..62 (section 2).

    Raises:
        QuantizationError: the ratio is 2**22 or larger, or not finite; `where` names the operator.
    """
    if not math.isfinite(ratio):
        raise QuantizationError(f"{where}: the ratio of its scales is {ratio}", code="TW-3101")
    if ratio < 0:
        positive = multiplier(-ratio, where)
        return Multiplier(-positive.m, positive.shift)
    mantissa, exponent = math.frexp(ratio)
    m = rne(mantissa * 2.0**MULTIPLIER_BITS)
    if m == 2**MULTIPLIER_BITS:
        m, exponent = m // 2, exponent + 1
    shift = MULTIPLIER_BITS - exponent
    if ratio == 0 or shift > MAX_SHIFT:
        return Multiplier(0, MAX_SHIFT)
    if shift < 2:
        raise QuantizationError(
            f"{where}: the ratio of its scales is {ratio:g}, 2**22 or more",
            fix="recalibrate: one of the two ranges is wrong by orders of magnitude",
            code="TW-3102",
        )
    return Multiplier(m, shift)


def multipliers(ratios: npt.ArrayLike, where: str) -> tuple[IntArray, IntArray]:
    """`multiplier` of each ratio: arrays m, shift (int64) of the same shape."""
    real = np.asarray(ratios, np.float64)
    for bad in real[~np.isfinite(real)]:
        multiplier(float(bad), where)
    mantissa, exponent = np.frexp(np.abs(real))
    m = rounded(mantissa * 2.0**MULTIPLIER_BITS)
    carried = m == 2**MULTIPLIER_BITS
    m = np.where(carried, m // 2, m)
    shift = MULTIPLIER_BITS - (exponent.astype(np.int64) + carried)
    for bad in real[(shift < 2) & (real != 0)]:
        multiplier(float(bad), where)
    vanishes = (real == 0) | (shift > MAX_SHIFT)
    m = np.where(vanishes, 0, np.where(real < 0, -m, m))
    return m, np.where(vanishes, MAX_SHIFT, shift)


def rounded(values: npt.NDArray[np.float64]) -> IntArray:
    """`rne` of each float64 value below 2**63, int64."""
    return np.asarray(np.rint(values).astype(np.int64), np.int64)


def r24(x: npt.ArrayLike, m: npt.ArrayLike, shift: npt.ArrayLike, pre_shift: int = 0) -> IntArray:
    """`(x*m + 2**(shift-1)) >> shift`, halves up; with a pre-shift, x is first rounded by it.

    A negative m is the negated rescale by |m|.  The caller proves |x| < 2**38 after the pre-shift.
    """
    x, m, shift = (np.asarray(v, np.int64) for v in (x, m, shift))
    if pre_shift:
        x = (x + (1 << (pre_shift - 1))) >> pre_shift
    y = (x * np.abs(m) + (np.int64(1) << (shift - 1))) >> shift
    return np.asarray(np.where(m < 0, -y, y), np.int64)


def saturate(x: npt.ArrayLike, lo: npt.ArrayLike, hi: npt.ArrayLike) -> IntArray:
    """Clamp to [lo, hi]."""
    return np.asarray(np.minimum(np.maximum(np.asarray(x, np.int64), lo), hi), np.int64)


def pre_shift_for(bound: int) -> int:
    """The pre-shift of an operator whose accumulator stays below `bound` (section 2)."""
    return max(0, (bound + 2**8).bit_length() - 38)


# Ranges of types, and from float ranges to scales (section 1).


class IntRange(NamedTuple):
    lo: int
    hi: int


def affine_parameters(low: float, high: float, lo: int, hi: int) -> tuple[float, int]:
    """Scale (a float32 value) and zero point of an asymmetric 8-bit type [lo, hi] (section 1)."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        return 1.0, lo
    scale = _positive_f32((high - low) / (hi - lo))
    return scale, min(max(rne(lo - low / scale), lo), hi)


def symmetric_scale(amax: float, hi: int) -> float:
    """Scale (a float32 value) of a symmetric type whose largest code is `hi` (section 1)."""
    return 1.0 if amax == 0 else _positive_f32(amax / hi)


def _positive_f32(value: float) -> float:
    return f32(max(value, float(np.finfo(np.float32).tiny)))


def power_of_two_at_least(scale: float) -> float:
    """The smallest power of two not below `scale`."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def weight_scales(
    amax: npt.ArrayLike, bias: npt.ArrayLike, input_scale: float, hi: int = 127
) -> npt.NDArray[np.float32]:
    """Per-channel weight scales that never saturate the bias (section 1).

    Args:
        amax: [C] largest |weight| of each output channel.
        bias: [C] float bias.
        input_scale: scale of the input activation.
        hi: the largest weight code, 127 or 32767.
    """
    top, b = np.asarray(amax, np.float64), np.abs(np.asarray(bias, np.float64))
    step = float(input_scale)
    live = np.maximum(top / hi, b / (step * 2.0**30))
    dead = np.where(b == 0, 1.0, b / (step * 2.0**22))
    least = float(np.finfo(np.float32).tiny)
    return np.maximum(np.where(top > 0, live, dead), least).astype(np.float32)


def constant_code(value: float, scale: float, zero_point: int, lo: int, hi: int) -> int:
    """A float constant (clamp bound, pad value) in the quantized domain: sat(rne(v/s) + zp)."""
    steps = value / scale
    if math.isinf(steps):
        return hi if steps > 0 else lo
    return min(max(rne(steps) + zero_point, lo), hi)


# Borders (section 3).


def quantize(x: npt.ArrayLike, scale: float, zero_point: int, lo: int, hi: int) -> IntArray:
    """float32 to codes: division in float32, clamp, round half to even; NaN is the zero point."""
    with np.errstate(over="ignore", invalid="ignore"):
        q = np.asarray(x, np.float32) / np.float32(scale)
    q = np.nan_to_num(q, nan=0.0, posinf=np.inf, neginf=-np.inf)
    q = np.clip(q, np.float32(lo - zero_point), np.float32(hi - zero_point))
    return np.asarray(np.rint(q).astype(np.int64) + zero_point, np.int64)


def dequantize(q: npt.ArrayLike, scale: float, zero_point: int) -> FloatArray:
    """Codes to float32: one float32 multiplication."""
    return (np.asarray(q, np.int64) - zero_point).astype(np.float32) * np.float32(scale)


# Add and Sub (section 5).


@dataclass(frozen=True)
class AddParameters:
    """`y = sat(((ma*(a-za) ± mb*(b-zb) + 2**(shift-1)) >> shift) + zy)`."""

    ma: int
    mb: int
    shift: int


def add_parameters(sa: float, sb: float, sy: float, wide: bool, where: str) -> AddParameters:
    """Multipliers and the common shift; `wide` when any of the three is a 16-bit type."""
    ra, rb = sa / sy, sb / sy
    _, exponent = math.frexp(max(ra, rb))
    shift = min(24 - exponent, 40) if wide else min(21 - exponent, 30)
    _require_shift(shift, where)
    return AddParameters(rne(ra * 2.0**shift), rne(rb * 2.0**shift), shift)


def add_constant_parameters(
    sa: float, sy: float, constant: npt.ArrayLike, wide: bool, wide_output: bool, where: str
) -> tuple[int, IntArray, int]:
    """Multiplier, integer constants and shift of an Add whose one operand is constant.

    Returns:
        ma, C (int64, the constant's shape), shift:
        `y = sat(((ma*(a-za) + C + 2**(shift-1)) >> shift) + zy)`.
    """
    _, exponent = math.frexp(sa / sy)
    shift = min(24 - exponent, 40) if wide else min(21 - exponent, 21)
    _require_shift(shift, where)
    reach = 131071 if wide_output else 511
    values = np.asarray(constant, np.float64)
    codes = [
        rne(Fraction(min(max(float(c) / sy, -reach), reach)) * 2**shift) for c in values.ravel()
    ]
    return rne(sa / sy * 2.0**shift), np.array(codes, np.int64).reshape(values.shape), shift


def _require_shift(shift: int, where: str) -> None:
    if shift < 1:
        raise QuantizationError(
            f"{where}: its output scale is too small for its input scales (shift {shift})",
            fix="recalibrate: one of the ranges is wrong by orders of magnitude",
            code="TW-3103",
        )


# Tables (section 7).

ScalarFunction = Callable[[float], float]


def table8(
    f: ScalarFunction, in_range: IntRange, sx: float, zx: int, out: IntRange, sy: float, zy: int
) -> IntArray:
    """256 entries, indexed by `q - in_range.lo`: sat(rne(f(sx*(q-zx))/sy) + zy)."""
    return np.array(
        [
            constant_code(f(sx * (q - zx)), sy, zy, out.lo, out.hi)
            for q in range(in_range.lo, in_range.hi + 1)
        ],
        np.int64,
    )


@dataclass(frozen=True)
class Table16:
    """513 entries at q = -32768 + 128*i and the rescale of the interpolated value."""

    entries: IntArray
    m: int
    shift: int


def table16(f: ScalarFunction, sx: float, sy: float, output_is_16_bit: bool, where: str) -> Table16:
    """The table of a 16-bit input (section 7)."""
    values = [f(sx * (-32768 + 128 * i)) for i in range(513)]
    finite = [abs(v) for v in values if math.isfinite(v)]
    peak = max(finite, default=0.0)
    st = sy if output_is_16_bit else peak / 32767
    if st == 0:
        return Table16(np.zeros(513, np.int64), 0, MAX_SHIFT)
    entries = [constant_code(v, st, 0, -32767, 32767) for v in values]
    m, shift = multiplier(st / (128 * sy), where)
    return Table16(np.array(entries, np.int64), m, shift)


def interpolate16(q: npt.ArrayLike, table: Table16) -> IntArray:
    """R24 of the interpolated table value, before the output zero point (section 7)."""
    q = np.asarray(q, np.int64)
    i, frac = (q >> 7) + 256, q & 127
    left = table.entries[i]
    v = 128 * left + (table.entries[i + 1] - left) * frac
    return r24(v, table.m, table.shift)


# Softmax (section 11).

EXP2_TABLE: IntArray = np.array([rne(2.0 ** (23 - i / 256)) for i in range(257)], np.int64)


def softmax_multiplier(sx: float) -> Multiplier:
    """R24 pair that turns a code difference into a Q16 exponent of two."""
    return multiplier(min(sx * math.log2(math.e), 32.0) * 2**16, "Softmax")


def exponentials(q: npt.ArrayLike, exponent: Multiplier) -> IntArray:
    """E of section 11 over the last axis: 2**23 at the maximum."""
    q = np.asarray(q, np.int64)
    t = r24(q.max(axis=-1, keepdims=True) - q, exponent.m, exponent.shift)
    n, f = t >> 16, t & 65535
    i, g = f >> 8, f & 255
    p = EXP2_TABLE[i] - (((EXP2_TABLE[i] - EXP2_TABLE[i + 1]) * g + 128) >> 8)
    n = np.minimum(n, 32)
    return np.asarray(np.where(n > 31, 0, (p + ((np.int64(1) << n) >> 1)) >> n), np.int64)


def softmax_probabilities(q: npt.ArrayLike, exponent: Multiplier) -> IntArray:
    """Q24 probabilities over the last axis."""
    e = exponentials(q, exponent)
    r = 2**53 // e.sum(axis=-1, keepdims=True)
    return np.asarray((e * r + 2**28) >> 29, np.int64)


def attention_weights(score: npt.ArrayLike, exponent: Multiplier) -> IntArray:
    """p of section 11 over the last axis: unnormalised probabilities, 255 at the maximum."""
    return np.asarray((255 * exponentials(score, exponent) + 2**22) >> 23, np.int64)


def attention_means(p: IntArray, acc: IntArray) -> IntArray:
    """w of section 11: sums of p * v, [..., depth], over the sum of p [..., keys]; Q16."""
    share = 2**39 // p.sum(axis=-1, keepdims=True)
    return np.asarray((acc * share + 2**22) >> 23, np.int64)


def attention_constants(values: npt.ArrayLike, scale: float) -> IntArray:
    """C of section 11: what constant addends, float64, add to the scores."""
    with np.errstate(over="ignore"):
        steps = np.asarray(values, np.float64) / scale
    return rounded(np.clip(steps, -131071.0, 131071.0))


# Normalisation (section 12).

NORM_LIMIT = 2**62
"""W, the scaled sum of squares, stays below this."""
NORM_EPSILON_LIMIT = 2**60


def norm_epsilon(epsilon: float, unit: int, sx: float) -> int:
    """eps' of section 12; `unit` is C, or 1 for L2."""
    return rne(min(epsilon * float(unit) ** 2 / sx**2, float(NORM_EPSILON_LIMIT)))


class Affine(NamedTuple):
    """`(n*gain + offset + 2**(shift-1)) >> shift` in output steps; gain and offset int64 [C]."""

    gain: IntArray
    offset: IntArray
    shift: int


def norm_affine(
    gamma: npt.ArrayLike, beta: npt.ArrayLike, sy: float, bits: int, where: str
) -> Affine:
    """G, B and s of section 12 for normalised values with `bits` fractional bits.

    Args:
        gamma, beta: [C] real.

    Raises:
        QuantizationError: no shift is large enough; `where` names the operator.
    """
    gains = np.asarray(gamma, np.float64) / (sy * 2.0**bits)
    offsets = np.asarray(beta, np.float64) / sy
    _, exponent = math.frexp(float(np.abs(gains).max()))
    shift = min(24 - exponent, 44) if gains.any() else 20
    top = float(np.abs(offsets).max())
    while shift >= 1 and np.rint(top * 2.0**shift) >= 2.0**52:
        shift -= 1
    _require_shift(shift, where)
    return Affine(rounded(gains * 2.0**shift), rounded(offsets * 2.0**shift), shift)


def normalized(d: npt.ArrayLike, w: npt.ArrayLike, bits: int) -> IntArray:
    """n of section 12: d over the square root of W, with `bits` fractional bits, halves up.

    Args:
        d: int64 [..., C].
        w: int64 [..., 1], below 2**62.
    """
    w = np.asarray(w, np.int64)
    roots = [_inverse_root(int(v)) for v in w.ravel()]
    r = np.array([r for r, _ in roots], np.int64).reshape(w.shape)
    h = 61 - bits - np.array([half for _, half in roots], np.int64).reshape(w.shape)
    return np.asarray((np.asarray(d, np.int64) * r + (np.int64(1) << (h - 1))) >> h, np.int64)


def _inverse_root(w: int) -> tuple[int, int]:
    """r and k/2 of section 12; r = 0 makes every n zero."""
    if w == 0:
        return 0, 0
    half = (62 - w.bit_length()) // 2
    return 2**61 // math.isqrt(w << 2 * half), half


# Resize (section 10).


def resize_coefficients(weights: npt.ArrayLike) -> IntArray:
    """Q11 integers of one output's interpolation weights, adding up to exactly 2048.

    The remainder goes to the largest weight, the first of equals.
    """
    exact = [Fraction(w) for w in np.asarray(weights, dtype=object).ravel()]
    codes = [rne(w * 2048) for w in exact]
    largest = max(range(len(exact)), key=lambda i: (exact[i], -i))
    codes[largest] += 2048 - sum(codes)
    return np.array(codes, np.int64)
