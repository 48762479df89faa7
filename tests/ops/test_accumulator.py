"""Bounds of accumulators, and scales that are raised until they hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import QuantizationError
from tilewright.graph import DType, TensorType
from tilewright.ops.accumulator import limit, provable
from tilewright.ops.builder import WeightCodes

X = TensorType(DType.U8, (1, 4), 0.25, 3)


def weights(codes, zero=0, dtype=DType.S8, scale=0.5):
    array = np.array(codes, dtype.numpy)
    return WeightCodes(array, dtype, np.full(len(array), scale, np.float32), zero)


def bound(codes, zero, bias, x):
    return sum(abs(int(c) - zero) for c in codes) * x.reach + abs(int(bias))


@st.composite
def products(draw):
    """Weights [C, K] of any type, biases around and far above the limit."""
    dtype = draw(st.sampled_from([DType.S8, DType.U8, DType.S16]))
    low, high = dtype.range
    zero = draw(st.integers(low, high)) if dtype is DType.U8 else 0
    x = draw(st.sampled_from([X, TensorType(DType.S16, (1, 4), 0.25, 0)]))
    count, terms = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    row = st.lists(st.integers(low, high), min_size=terms, max_size=terms)
    codes = draw(st.lists(row, min_size=count, max_size=count))
    most = limit(x.dtype, dtype)
    size = st.floats(0, 40 * most) | st.sampled_from([most - 1.0, most / 2 - 0.5, 2.0**70])
    bias = draw(st.lists(st.tuples(size, st.sampled_from([-1, 1])), min_size=count, max_size=count))
    return weights(codes, zero, dtype), np.array([b * sign for b, sign in bias]), x


@given(products())
@settings(max_examples=200, deadline=None)
def test_the_smallest_power_of_two_that_makes_the_bound_hold(case):
    given_weights, bias, x = case
    zero, most = given_weights.zero_point, limit(x.dtype, given_weights.dtype)
    found = provable(given_weights, bias, x, "here")
    for c, k in enumerate(int(e) for e in found.exponents):
        for shrunk in range(k + 1):
            scaled = [Fraction(int(w) - zero, 2**shrunk) for w in given_weights.codes[c]]
            codes = [round(w) + zero for w in scaled]  # halves to even, as everywhere
            steps = round(Fraction(float(bias[c])) / 2**shrunk)
            assert (bound(codes, zero, steps, x) < most) == (shrunk == k)
        assert list(found.weights.codes[c]) == codes and found.bias[c] == steps
        assert found.weights.scale[c] == given_weights.scale[c] * 2.0**k
    assert found.weights.codes.dtype == given_weights.codes.dtype
    assert found.bound < most


def test_other_channels_keep_their_weights():
    found = provable(weights([[3, -127], [3, -127]]), np.array([2.0**31 - 1, 5]), X, "here")
    assert list(found.exponents) == [1, 0]
    assert found.weights.codes.tolist() == [[2, -64], [3, -127]]
    assert found.bias.tolist() == [2**30, 5] and found.weights.scale.tolist() == [1.0, 0.5]


def test_a_bias_that_no_scale_holds_is_refused():
    far = weights([[1]], scale=1e30)
    with pytest.raises(QuantizationError, match=r"here: .* channel 0 can reach \d+, the limit"):
        provable(far, np.array([2.0**70]), X, "here")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bias_that_is_not_finite_is_refused(bad):
    with pytest.raises(QuantizationError, match="NaN or infinite") as error:
        provable(weights([[1]]), np.array([bad]), X, "here")
    assert error.value.code == "TW-3120"
