"""Ranges that a histogram observer chooses from: the full range cut at falling thresholds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.quantize.observers.base import Histogram, TensorStatistics
from tilewright.quantize.ranges import Range

CANDIDATES = 96
SMALLEST_SHARE = 0.05

Loss = Callable[[Histogram, Range], float]


def best_clip(statistics: TensorStatistics, loss: Loss) -> Range:
    """The cut of the full range with the smallest loss; the widest of equals.

    A threshold t gives [max(low, -t), min(high, t)]: both ends are cut alike.
    """
    full = statistics.range
    histogram = statistics.histogram
    if histogram is None or full.reach == 0 or histogram.counts.sum() == 0:
        return full
    cuts = [cut(full, t) for t in full.reach * np.linspace(1.0, SMALLEST_SHARE, CANDIDATES)]
    return min(cuts, key=lambda c: loss(histogram, c))


def cut(full: Range, threshold: float) -> Range:
    return Range(max(full.low, -float(threshold)), min(full.high, float(threshold)))


def steps(levels: int, reals: Range) -> float:
    """Distance of neighbouring codes when `levels` steps span `reals`."""
    return max(reals.width, 1e-30) / levels
