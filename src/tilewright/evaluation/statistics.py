"""Figures with their uncertainty: proportions, paired tests, signal-to-noise ratios."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Standard normal quantile of a two-sided 95 % interval.
Z_95 = 1.959963984540054


class Proportion(NamedTuple):
    """A share of `total` with its 95 % Wilson score interval."""

    value: float
    low: float
    high: float
    total: int


def proportion(hits: int, total: int) -> Proportion:
    """Wilson's interval: (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Raises:
        ValueError: no trials.
    """
    if total < 1:
        raise ValueError("a share of nothing")
    p, z = hits / total, Z_95
    centre = p + z * z / (2 * total)
    spread = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return Proportion(
        p, max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale), total
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of McNemar's test for two models scored on the same samples.

    Args:
        only_first: samples that only the first model gets right.
        only_second: samples that only the second gets right.
    """
    n = only_first + only_second
    if n == 0:
        return 1.0
    k = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return float(min(1.0, 2 * tail))


class NoiseRatio:
    """Signal-to-quantization-noise ratio of one output, accumulated over samples in float64.

    SQNR = 10 log10(sum x² / sum (x - y)²), in decibels.
    """

    def __init__(self) -> None:
        self.signal = 0.0
        self.noise = 0.0

    def add(self, exact: Array, approximate: Array) -> None:
        """Take one sample's float output and its approximation."""
        x = exact.astype(np.float64).ravel()
        self.signal += float(x @ x)
        d = x - approximate.astype(np.float64).ravel()
        self.noise += float(d @ d)

    @property
    def decibels(self) -> float | None:
        """None where the output is all zero; infinite outputs of equal bits give `inf`."""
        if self.signal == 0.0:
            return None
        if self.noise == 0.0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise)


def top_classes(scores: Array, k: int) -> Array:
    """Indices of the `k` largest scores, largest first; ties go to the smaller index."""
    flat = scores.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")
    return order[:k]


def softmax(scores: Array) -> Array:
    """Probabilities from logits, float64."""
    x = scores.astype(np.float64).reshape(-1)
    e = np.exp(x - x.max())
    result: Array = e / e.sum()
    return result


def as_probabilities(scores: Array) -> Array:
    """Scores that already are a distribution are kept, logits go through a softmax."""
    flat = scores.astype(np.float64).reshape(-1)
    if flat.min() >= 0 and abs(flat.sum() - 1) < 0.02:
        return flat
    return softmax(flat)
