"""MSE: the cut of the range with the least squared error after rounding and saturation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tilewright.quantize.observers.base import Histogram, TensorStatistics
from tilewright.quantize.observers.clipping import best_clip, steps
from tilewright.quantize.ranges import ActivationType, Range
from tilewright.quantize.scheme import ObserverChoice


class MeanSquaredError:
    NAME: ClassVar[str] = "mse"

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        return True

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        return best_clip(statistics, lambda h, r: _loss(h, r, kind))


def _loss(histogram: Histogram, reals: Range, kind: ActivationType) -> float:
    """Sum of squared errors: uniform rounding noise (step**2 / 12) inside, the excess outside."""
    spanned = kind.spanned(reals)
    step = steps(kind.levels, spanned)
    values = histogram.centres
    excess = values - np.clip(values, spanned.low, spanned.high)
    inside = (excess == 0) & (np.abs(values) > step / 2)
    noise = np.where(inside, step * step / 12, excess * excess)
    return float((histogram.counts * noise).sum())
