"""Every formula of `numerics` against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import DType
from tilewright.numerics import IntRange

TYPES = [DType.U8, DType.S8, DType.S16]
positive = st.floats(2.0**-60, 2.0**21.9, allow_nan=False)
scales = st.floats(-14, 6).map(lambda e: numerics.f32(2.0**e))
codes38 = st.integers(-(2**38) + 1, 2**38 - 1)


@st.composite
def encodings(draw):
    """dtype, scale, zero point."""
    dtype = draw(st.sampled_from(TYPES))
    zero = 0 if dtype is DType.S16 else draw(st.integers(*dtype.range))
    return dtype, draw(scales), zero


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def saturated(value: Fraction | int, dtype: DType) -> Fraction:
    lo, hi = dtype.range
    return min(max(Fraction(value), Fraction(lo)), Fraction(hi))


# R24 (section 2).


@given(positive)
def test_a_multiplier_is_the_nearest_of_24_bits(ratio):
    m, shift = numerics.multiplier(ratio)
    if shift == 62 and m == 0:
        assert Fraction(ratio) < Fraction(1, 2**39)
        return
    assert 2**23 <= m < 2**24 and 2 <= shift <= 62
    exact = Fraction(ratio) * 2**shift
    assert abs(exact - m) <= Fraction(1, 2)


@given(st.floats(-30, 20).map(lambda e: numerics.f32(2.0**e)))
def test_a_float32_ratio_is_exact(ratio):
    m, shift = numerics.multiplier(ratio)
    assert Fraction(m, 2**shift) == Fraction(ratio)


@given(positive)
def test_a_negative_ratio_is_the_negated_rescale(ratio):
    m, shift = numerics.multiplier(ratio)
    assert numerics.multiplier(-ratio) == (-m, shift)


@pytest.mark.parametrize("ratio", [0.0, -0.0, 2.0**-40, 5e-324])
def test_ratios_that_vanish(ratio):
    assert numerics.multiplier(ratio) == (0, 62)
    assert numerics.r24(2**38 - 1, 0, 62) == 0


@pytest.mark.parametrize("ratio", [2.0**22, 1e30, math.inf, -math.inf, math.nan])
def test_ratios_that_are_refused(ratio):
    with pytest.raises(QuantizationError, match="conv7"):
        numerics.multiplier(ratio, "conv7")


def test_the_largest_ratio():
    assert numerics.multiplier(math.nextafter(2.0**22, 0) - 1).shift == 2
    with pytest.raises(QuantizationError):
        numerics.multiplier(math.nextafter(2.0**22, 0))


@given(codes38, positive, st.booleans())
def test_r24_rounds_once_halves_up(x, ratio, negate):
    m, shift = numerics.multiplier(ratio)
    exact = half_up(Fraction(x) * Fraction(m, 2**shift))
    got = numerics.r24(x, -m if negate else m, shift)
    assert int(got) == (-exact if negate else exact)


@given(st.integers(-(2**46), 2**46), st.integers(1, 12), positive)
def test_r24_with_a_pre_shift_rounds_twice(x, p, ratio):
    x = min(max(x, -(2 ** (37 + p))), 2 ** (37 + p))
    m, shift = numerics.multiplier(min(ratio, 1.0) * 2.0**p)
    first = half_up(Fraction(x, 2**p))
    assert int(numerics.r24(x, m, shift, p)) == half_up(Fraction(first) * Fraction(m, 2**shift))


@given(st.integers(0, 2**47 - 1))
def test_the_pre_shift_is_the_smallest_that_keeps_38_bits(bound):
    p = numerics.pre_shift_for(bound)
    assert (bound + (2**p >> 1)) >> p < numerics.R24_LIMIT
    assert p == 0 or (bound + 2**8) >> (p - 1) >= numerics.R24_LIMIT


@given(st.lists(positive, min_size=1, max_size=6))
def test_multipliers_keep_the_shape(ratios):
    m, shift = numerics.multipliers(np.array(ratios).reshape(1, -1), "op")
    assert m.shape == shift.shape == (1, len(ratios))
    assert [tuple(p) for p in zip(m[0], shift[0], strict=True)] == [
        numerics.multiplier(r) for r in ratios
    ]


# Ranges and scales (section 1).


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from([DType.U8, DType.S8]))
def test_affine_parameters_cover_the_range(a, b, dtype):
    low, high = min(a, b), max(a, b)
    lo, hi = dtype.range
    scale, zero = numerics.affine_parameters(low, high, lo, hi)
    assert scale == numerics.f32(scale) > 0 and lo <= zero <= hi
    if low == high == 0:
        assert (scale, zero) == (1.0, lo)
        return
    low, high = min(low, 0.0), max(high, 0.0)
    # Zero is a code; both ends are within one step of the outermost codes.
    slack = scale * (1 + 1e-5)
    assert scale * (lo - zero) <= low + slack and scale * (hi - zero) >= high - slack


@given(st.floats(1e-30, 1e30), st.sampled_from([127, 32767]))
def test_symmetric_scales_reach_the_top(amax, hi):
    scale = numerics.symmetric_scale(amax, hi)
    assert scale == numerics.f32(scale)
    assert math.isclose(scale * hi, amax, rel_tol=2.0**-23) or scale > amax / hi
    assert numerics.symmetric_scale(0.0, hi) == 1.0


@given(
    st.lists(
        st.tuples(st.one_of(st.just(0.0), st.floats(1e-12, 1e4)), st.floats(-1e6, 1e6)),
        min_size=1,
        max_size=5,
    ),
    scales,
    st.sampled_from([127, 32767]),
)
def test_weight_scales_never_saturate_bias_or_weights(channels, sx, hi):
    amax, bias = zip(*channels, strict=True)
    sw = numerics.weight_scales(amax, bias, sx, hi)
    assert sw.dtype == np.float32 and (sw > 0).all()
    for top, b, s in zip(amax, bias, sw, strict=True):
        assert abs(numerics.rne(float(b) / (sx * float(s)))) <= 2**30 * (1 + 2.0**-22)
        assert numerics.rne(top / float(s)) <= hi
        if b == 0 and top == 0:
            assert s == 1


@given(st.floats(2.0**-40, 2.0**40))
def test_powers_of_two(scale):
    power = numerics.power_of_two_at_least(scale)
    assert math.frexp(power)[0] == 0.5 and scale <= power < 2 * scale


@given(st.floats(allow_nan=False), encodings())
@example(1.7e308, (DType.S8, 2.0**-14, 0))
def test_constants_in_codes(value, encoding):
    dtype, scale, zero = encoding
    code = numerics.constant_code(value, scale, zero, *dtype.range)
    if math.isinf(value / scale):
        assert code == (dtype.range.hi if value > 0 else dtype.range.lo)
    else:
        exact = saturated(Fraction(value / scale) + zero, dtype)
        assert abs(exact - code) <= Fraction(1, 2)


# Borders (section 3).


@given(st.floats(width=32), encodings())
def test_quantize_is_one_float32_division_rounded_to_even(value, encoding):
    dtype, scale, zero = encoding
    lo, hi = dtype.range
    got = int(numerics.quantize(np.float32(value), scale, zero, lo, hi))
    if math.isnan(value):
        assert got == zero
        return
    with np.errstate(over="ignore"):
        quotient = float(np.float32(value) / np.float32(scale))
    if math.isinf(quotient):
        assert got == (hi if quotient > 0 else lo)
    else:
        assert got == min(max(round(Fraction(quotient)) + zero, lo), hi)


@given(encodings(), st.data())
def test_dequantize_is_one_float32_product_and_comes_back(encoding, data):
    dtype, scale, zero = encoding
    q = data.draw(st.integers(*dtype.range))
    real = numerics.dequantize(q, scale, zero)
    assert real.dtype == np.float32 and float(real) == numerics.f32((q - zero) * scale)
    assert int(numerics.quantize(real, scale, zero, *dtype.range)) == q


# Add (section 5).


@given(encodings(), encodings(), encodings(), st.data())
def test_add_is_within_its_rounding_of_the_exact_sum(a, b, y, data):
    (ta, sa, za), (tb, sb, zb), (ty, sy, zy) = a, b, y
    wide = DType.S16 in (ta, tb, ty)
    try:
        p = numerics.add_parameters(sa, sb, sy, wide, "add")
    except QuantizationError:
        assert max(sa, sb) / sy >= 2.0 ** (23 if wide else 20)
        return
    qa, qb = data.draw(st.integers(*ta.range)), data.draw(st.integers(*tb.range))
    total = p.ma * (qa - za) + p.mb * (qb - zb) + 2 ** (p.shift - 1)
    assert abs(total) < (2**62 if wide else 2**31)
    assert max(p.ma, p.mb) < 2**31
    got = saturated((total >> p.shift) + zy, ty)
    exact = saturated(
        Fraction(sa) / Fraction(sy) * (qa - za) + Fraction(sb) / Fraction(sy) * (qb - zb) + zy, ty
    )
    # Each multiplier is off by half a unit (and the last bit of a float64 ratio).
    slack = Fraction(abs(qa - za) + abs(qb - zb), 2 ** (p.shift + 1)) * Fraction(1001, 1000)
    assert abs(got - exact) <= Fraction(1, 2) + slack


@given(encodings(), encodings(), st.floats(width=32, allow_nan=False), st.data())
def test_a_constant_is_added_exactly_but_for_its_shift(a, y, constant, data):
    (ta, sa, za), (ty, sy, zy) = a, y
    wide, wide_output = DType.S16 in (ta, ty), ty is DType.S16
    try:
        ma, c, shift = numerics.add_constant_parameters(
            sa, sy, [constant], wide, wide_output, "add"
        )
    except QuantizationError:
        assert sa / sy >= 2.0 ** (23 if wide else 20)
        return
    qa = data.draw(st.integers(*ta.range))
    total = ma * (qa - za) + int(c[0]) + 2 ** (shift - 1)
    assert abs(total) < (2**62 if wide else 2**31)
    reach = 131071 if wide_output else 511
    v = min(max(constant / sy, -reach), reach)
    exact = saturated(Fraction(sa) / Fraction(sy) * (qa - za) + Fraction(v) + zy, ty)
    slack = Fraction(abs(qa - za) + 1, 2 ** (shift + 1)) * Fraction(1001, 1000)
    assert abs(saturated((total >> shift) + zy, ty) - exact) <= Fraction(1, 2) + slack


@given(encodings(), encodings(), st.data())
def test_a_clamped_constant_still_saturates_the_sum(a, y, data):
    """511 steps are beyond every 8-bit result that the other operand can bring back."""
    (ta, sa, za), (ty, sy, zy) = a, y
    if DType.S16 in (ta, ty) or sa > sy:
        return
    ma, c, shift = numerics.add_constant_parameters(sa, sy, [-3.4e38, 3.4e38], False, False, "add")
    qa = data.draw(st.integers(*ta.range))
    low, high = ((ma * (qa - za) + int(v) + 2 ** (shift - 1)) >> shift for v in c)
    assert (saturated(low + zy, ty), saturated(high + zy, ty)) == ty.range


# Tables (section 7).

FUNCTIONS = [math.tanh, math.sin, lambda v: v * v, lambda v: max(v, 0.1 * v), lambda _: 0.0]


@given(st.sampled_from(FUNCTIONS), encodings(), encodings())
@settings(max_examples=30)
def test_tables_of_bytes_are_rounded_once(f, x, y):
    (tx, sx, zx), (ty, sy, zy) = x, y
    if tx is DType.S16:
        return
    table = numerics.table8(f, tx.range, sx, zx, ty.range, sy, zy)
    assert len(table) == 256
    for q, entry in zip(range(tx.range.lo, tx.range.hi + 1), table, strict=True):
        exact = saturated(Fraction(f(sx * (q - zx)) / sy) + zy, ty)
        assert abs(exact - int(entry)) <= Fraction(1, 2)


@given(
    st.sampled_from(FUNCTIONS),
    st.floats(-15, -11).map(lambda e: numerics.f32(2.0**e)),
    st.booleans(),
    st.lists(st.integers(-32767, 32767), min_size=1, max_size=20),
)
@settings(max_examples=40)
def test_tables_of_16_bits_interpolate_exactly(f, sx, wide, queries):
    sy = numerics.f32(2.0**-9 if wide else 2.0**-1)
    table = numerics.table16(f, sx, sy, wide, "op")
    assert table.entries.shape == (513,) and np.abs(table.entries).max() <= 32767
    got = numerics.interpolate16(np.array(queries), table)
    for q, r in zip(queries, got, strict=True):
        i, frac = divmod(q + 32768, 128)
        left, right = int(table.entries[i]), int(table.entries[min(i + 1, 512)])
        v = Fraction(left) + Fraction(right - left) * Fraction(frac, 128)
        assert int(r) == half_up(128 * v * Fraction(table.m, 2**table.shift))


def test_an_all_zero_table_gives_zero():
    table = numerics.table16(lambda _: 0.0, 1.0, 0.5, False, "op")
    assert not numerics.interpolate16(np.arange(-32767, 32768), table).any()


def test_infinities_in_a_table_become_the_limit():
    table = numerics.table8(
        lambda v: math.inf if v <= 0 else 1 / v,
        IntRange(0, 255),
        1.0,
        0,
        IntRange(-128, 127),
        0.01,
        0,
    )
    assert table[0] == 127 and table[2] == 50


# Softmax (section 11).


@given(
    st.lists(st.integers(-32767, 32767), min_size=1, max_size=60),
    st.floats(-14, 3).map(lambda e: numerics.f32(2.0**e)),
)
def test_softmax_is_within_a_fraction_of_a_step(q, sx):
    p = numerics.softmax_probabilities(np.array([q]), numerics.softmax_multiplier(sx))[0]
    reals = [math.exp((v - max(q)) * sx) for v in q]
    total = math.fsum(reals)
    worst = max(abs(int(v) / 2**24 - r / total) for v, r in zip(p, reals, strict=True))
    # A small part of a step of 2**-15, the finest usual output.
    assert worst < 2.0**-15 / 8
    assert abs(int(p.sum()) - 2**24) <= len(q) + 2**24 * 2.0**-20


def test_softmax_of_a_mask_is_exactly_zero():
    p = numerics.softmax_probabilities(np.array([[100, 0]]), numerics.softmax_multiplier(78.0))
    assert p.tolist() == [[2**24, 0]]


def test_the_longest_softmax_fits():
    q = np.zeros((1, 2**20), np.int64)
    p = numerics.softmax_probabilities(q, numerics.softmax_multiplier(0.1))
    assert (p == 16).all()


# Normalisation (section 12).


@given(
    st.integers(1, 2**62 - 1) | st.integers(0, 61).map(lambda e: 2**e),
    st.floats(-1, 1),
    st.sampled_from([16, 24]),
)
@example(2**62 - 1, 1.0, 16)
def test_a_quotient_is_as_exact_as_its_fraction(w, part, bits):
    d = int(part * math.isqrt(w))
    (n,) = numerics.normalized(np.array([d]), np.array([w]), bits)
    exact = Fraction(d << (bits + 100), math.isqrt(w << 200))
    assert abs(int(n) - exact) <= Fraction(1, 2) + abs(exact) / 2**29


def test_nothing_over_nothing_is_nothing():
    assert numerics.normalized(np.array([[0, 0]]), np.array([[0]]), 16).tolist() == [[0, 0]]


@given(st.floats(0, 1e3), st.integers(1, 60000), scales)
@example(1.0, 60000, 2.0**-40)
def test_epsilon_is_that_of_codes(epsilon, count, sx):
    found = numerics.norm_epsilon(epsilon, count, sx)
    exact = min(Fraction(epsilon) * count**2 / Fraction(sx) ** 2, Fraction(2**60))
    assert abs(found - exact) <= Fraction(1, 2) + exact / 2**51


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5),
    st.floats(-1e6, 1e6),
    st.floats(-16, 2).map(lambda e: numerics.f32(2.0**e)),
    st.sampled_from([16, 24]),
)
def test_an_affine_end_is_the_nearest_of_its_shift(gamma, beta, sy, bits):
    gain, offset, shift = numerics.norm_affine(gamma, [beta] * len(gamma), sy, bits, "op")
    assert 1 <= shift <= 44 and np.abs(offset).max() < 2**52 and np.abs(gain).max() <= 2**24
    for real, code in zip(gamma, gain, strict=True):
        exact = Fraction(real) * 2**shift / (Fraction(sy) * 2**bits)
        assert abs(int(code) - exact) <= Fraction(1, 2) + abs(exact) / 2**50
    exact = Fraction(beta) * 2**shift / Fraction(sy)
    assert abs(int(offset[0]) - exact) <= Fraction(1, 2) + abs(exact) / 2**50


def test_an_offset_that_no_shift_takes():
    with pytest.raises(QuantizationError, match="op: its output scale is too small"):
        numerics.norm_affine([1.0], [1e12], 1e-5, 16, "op")


# Resize (section 10).


@given(st.lists(st.fractions(-1, 1), min_size=1, max_size=4))
def test_resize_coefficients_add_up(weights):
    total = sum(weights)
    if total <= 0:
        return
    weights = [w / total for w in weights]
    made = numerics.resize_coefficients(np.array(weights, object))
    assert int(made.sum()) == 2048
    largest = weights.index(max(weights))
    for k, (code, w) in enumerate(zip(made, weights, strict=True)):
        error = abs(Fraction(int(code)) - w * 2048)
        assert error <= (Fraction(len(weights), 2) if k == largest else Fraction(1, 2))


@given(st.lists(st.floats(-(2.0**21), 2.0**21), min_size=1, max_size=20))
def test_many_multipliers_are_those_of_each_ratio(ratios):
    m, shift = numerics.multipliers(ratios, "test")
    assert list(zip(m.tolist(), shift.tolist(), strict=True)) == [
        numerics.multiplier(r) for r in ratios
    ]


def test_many_multipliers_refuse_what_one_refuses():
    for bad in (2.0**22, math.inf, math.nan):
        with pytest.raises(QuantizationError, match="test"):
            numerics.multipliers([1.0, bad], "test")
