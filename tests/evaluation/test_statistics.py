from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.evaluation.statistics import (
    NoiseRatio,
    as_probabilities,
    mcnemar,
    proportion,
    top_classes,
)


def test_wilson_interval_of_a_worked_example() -> None:
    # 8 of 10: centre (0.8 + 1.9207/10) / 1.38415, half width 0.22657.
    share = proportion(8, 10)
    assert share.value == 0.8
    assert share.low == pytest.approx(0.4901625, abs=1e-6)
    assert share.high == pytest.approx(0.9433178, abs=1e-6)


def test_intervals_stay_within_0_and_1() -> None:
    assert proportion(0, 5).low == 0
    assert proportion(5, 5).high == 1


def test_mcnemar_is_the_exact_binomial_test() -> None:
    # 1 against 9: 2 * (C(10,0) + C(10,1)) / 1024.
    assert mcnemar(1, 9) == pytest.approx(22 / 1024)
    assert mcnemar(9, 1) == mcnemar(1, 9)
    assert mcnemar(5, 5) == 1
    assert mcnemar(0, 0) == 1


def test_noise_ratio_accumulates_over_samples() -> None:
    ratio = NoiseRatio()
    ratio.add(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    ratio.add(np.array([0.0]), np.array([0.5]))
    assert ratio.decibels == pytest.approx(10 * math.log10(25 / 0.5))


def test_noise_ratio_of_equal_and_of_zero_outputs() -> None:
    same, zero = NoiseRatio(), NoiseRatio()
    same.add(np.ones(3), np.ones(3))
    zero.add(np.zeros(3), np.ones(3))
    assert same.decibels == math.inf
    assert zero.decibels is None


def test_ties_go_to_the_smaller_class() -> None:
    assert top_classes(np.array([[1.0, 3.0, 3.0, 2.0]]), 3).tolist() == [1, 2, 3]


def test_logits_become_probabilities_and_probabilities_stay() -> None:
    np.testing.assert_allclose(as_probabilities(np.log([1.0, 3.0])), [0.25, 0.75])
    np.testing.assert_array_equal(as_probabilities(np.array([0.25, 0.75])), [0.25, 0.75])
