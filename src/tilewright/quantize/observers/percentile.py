"""Percentile: the range that leaves `100 - percentile` per cent of the values outside.

Half of them at each end; a tensor that does not go below (above) zero is cut at the other end only.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tilewright.quantize.observers.base import TensorStatistics
from tilewright.quantize.ranges import ActivationType, Range, with_zero
from tilewright.quantize.scheme import ObserverChoice


class Percentile:
    NAME: ClassVar[str] = "percentile"

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        return not statistics.ends_are_clamps

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        histogram = statistics.histogram
        if histogram is None or histogram.counts.sum() == 0:
            return statistics.range
        full = statistics.range
        ends = (full.low < 0) + (full.high > 0)
        outside = histogram.counts.sum() * (1 - choice.percentile / 100) / max(ends, 1)
        cumulated = np.cumsum(histogram.counts)
        width = (histogram.high - histogram.low) / histogram.counts.size
        first = int(np.searchsorted(cumulated, outside, side="right"))
        last = int(np.searchsorted(cumulated, cumulated[-1] - outside, side="left"))
        low = histogram.low + width * first if full.low < 0 else 0.0
        high = histogram.low + width * (last + 1) if full.high > 0 else 0.0
        return with_zero(low, high)
