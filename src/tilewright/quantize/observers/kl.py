"""KL divergence: the cut that keeps the distribution of values most alike, as TensorRT made known.

P is the histogram cut at the threshold, its outliers counted in the last bins; Q is P without
outliers merged into as many bins as the type has levels and spread again over the bins that held
something.  Zero always is a code of its own: its bin, which after a Relu holds most values, is left
out.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tilewright.quantize.observers.base import FloatArray, Histogram, TensorStatistics
from tilewright.quantize.observers.clipping import best_clip
from tilewright.quantize.ranges import ActivationType, Range
from tilewright.quantize.scheme import ObserverChoice

SMOOTHING = 1e-4


class KullbackLeibler:
    NAME: ClassVar[str] = "kl"

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        return True

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        return best_clip(statistics, lambda h, r: _divergence(h, r, kind))


def _divergence(histogram: Histogram, reals: Range, kind: ActivationType) -> float:
    bins = histogram.counts.size
    width = (histogram.high - histogram.low) / bins
    first = min(max(round((reals.low - histogram.low) / width), 0), bins - 1)
    last = min(max(round((reals.high - histogram.low) / width), first + 1), bins)
    counts = np.where(np.abs(histogram.centres) < width / 2, 0.0, histogram.counts)
    inside = counts[first:last]
    p = inside.copy()
    p[0] += counts[:first].sum()
    p[-1] += counts[last:].sum()
    spanned = kind.spanned(Range(min(reals.low, 0.0), max(reals.high, 0.0)))
    used = max(1, round(kind.levels * reals.width / max(spanned.width, 1e-30)))
    levels = np.arange(inside.size) * min(used, inside.size) // inside.size
    filled = inside > 0
    mass = np.bincount(levels, weights=inside)
    share = np.bincount(levels, weights=filled.astype(np.float64))
    spread = mass / np.maximum(share, 1)
    q = np.where(filled, spread[levels], 0.0)
    if q.sum() == 0:
        return float("inf")
    return _kl(p / p.sum(), q / q.sum())


def _kl(p: FloatArray, q: FloatArray) -> float:
    support = p > 0
    return float(
        (p[support] * np.log(p[support] / np.maximum(q[support], SMOOTHING * p[support]))).sum()
    )
