from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.graph import DType
from tilewright.quantize.observers import OBSERVERS, Histogram, TensorStatistics
from tilewright.quantize.ranges import ActivationType, Range
from tilewright.quantize.scheme import ObserverChoice

U8 = ActivationType(DType.U8)


def statistics(samples, bins=2048):
    lows = np.array([s.min() for s in samples], np.float64)
    highs = np.array([s.max() for s in samples], np.float64)
    low, high = min(lows.min(), 0.0), max(highs.max(), 0.0)
    counts, _ = np.histogram(np.concatenate([s.ravel() for s in samples]), bins, (low, high))
    return TensorStatistics(lows, highs, Histogram(low, high, counts.astype(np.float64)))


def heavy_tail(seed=0, size=100_000):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size), np.append(rng.normal(size=size), [40.0, -40.0])]


@pytest.mark.parametrize("name", OBSERVERS)
def test_ranges_lie_inside_the_observed_one_and_hold_zero(name):
    seen = statistics(heavy_tail())
    found = OBSERVERS[name].range(seen, U8, ObserverChoice(name))
    full = seen.range
    assert full.low <= found.low <= 0 <= found.high <= full.high


@pytest.mark.parametrize("name", ["percentile", "mse", "kl"])
def test_histogram_observers_cut_two_outliers_in_many_values(name):
    found = OBSERVERS[name].range(statistics(heavy_tail()), U8, ObserverChoice(name, 99.9))
    assert found.high < 30
    assert found.low > -30


def test_minmax_keeps_outliers():
    choice = ObserverChoice("minmax")
    assert OBSERVERS["minmax"].range(statistics(heavy_tail()), U8, choice) == Range(-40.0, 40.0)


def test_moving_average_weighs_samples_in_order():
    seen = TensorStatistics(np.array([-1.0, -3.0]), np.array([2.0, 4.0]))
    found = OBSERVERS["moving_average"].range(seen, U8, ObserverChoice(momentum=0.75))
    assert found == Range(-1.5, 2.5)


@given(st.floats(90, 99.99), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_percentile_leaves_the_wanted_share_outside(percentile, seed):
    values = np.random.default_rng(seed).normal(size=20_000)
    found = OBSERVERS["percentile"].range(
        statistics([values]), U8, ObserverChoice("percentile", percentile)
    )
    outside = np.mean((values < found.low) | (values > found.high))
    assert outside == pytest.approx(1 - percentile / 100, abs=0.002)


def test_mse_is_better_than_the_full_range_after_real_quantization():
    samples = [np.append(np.random.default_rng(5).laplace(size=50_000), 30.0)]
    found = OBSERVERS["mse"].range(statistics(samples), U8, ObserverChoice("mse"))

    def error(reals):
        e = U8.encode(reals)
        codes = np.clip(np.rint(samples[0] / e.scale) + e.zero_point, 0, 255)
        return np.square((codes - e.zero_point) * e.scale - samples[0]).sum()

    assert error(found) < error(statistics(samples).range)


def test_the_bounds_of_a_clamp_need_no_histogram():
    clamped = TensorStatistics(np.zeros(4), np.array([6.0, 6.0, 6.0, 5.0]))
    open_ended = TensorStatistics(np.zeros(4), np.array([6.0, 5.9, 5.8, 5.0]))
    assert not OBSERVERS["percentile"].needs_histogram(clamped)
    assert OBSERVERS["percentile"].needs_histogram(open_ended)


@given(st.integers(1, 7))
@settings(max_examples=10, deadline=None)
def test_statistics_of_parts_merge_to_those_of_the_whole(cut):
    rng = np.random.default_rng(2)
    lows, highs = -rng.random(8), rng.random(8)
    counts = rng.integers(0, 9, (8, 16)).astype(np.float64)

    def part(a, b):
        return TensorStatistics(lows[a:b], highs[a:b], Histogram(-1, 1, counts[a:b].sum(axis=0)))

    merged, whole = part(0, cut).merged(part(cut, 8)), part(0, 8)
    assert np.array_equal(merged.lows, whole.lows)
    assert np.array_equal(merged.highs, whole.highs)
    assert np.array_equal(merged.histogram.counts, whole.histogram.counts)
