"""What an observer sees of one tensor, and its interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.quantize.ranges import ActivationType, Range
from tilewright.quantize.scheme import ObserverChoice

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Histogram:
    """Counts of equal bins from `low` to `high`.

    Args:
        counts: [bins].
    """

    low: float
    high: float
    counts: FloatArray

    @property
    def centres(self) -> FloatArray:
        """The middle of each bin."""
        width = (self.high - self.low) / self.counts.size
        return np.asarray(self.low + width * (np.arange(self.counts.size) + 0.5), np.float64)

    def merged(self, other: Histogram) -> Histogram:
        """The histogram of both sample sets; the bins are the same."""
        return Histogram(self.low, self.high, self.counts + other.counts)


@dataclass(frozen=True)
class TensorStatistics:
    """One tensor over all samples, in their order.

    Args:
        lows: [samples] smallest value; likewise `highs`.
        histogram: over the range of all samples; None unless an observer asked for it.
    """

    lows: FloatArray
    highs: FloatArray
    histogram: Histogram | None = None

    @property
    def range(self) -> Range:
        """Everything that any sample reached, and zero."""
        return Range(min(float(self.lows.min()), 0.0), max(float(self.highs.max()), 0.0))

    @property
    def ends_are_clamps(self) -> bool:
        """Do both ends hold many values, as the bounds of a clamp do?

        An end is taken for a clamp when half of the samples reach it exactly.
        """
        at_low, at_high = self.lows == self.lows.min(), self.highs == self.highs.max()
        return bool(min(at_low.mean(), at_high.mean()) >= 0.5) and self.lows.size > 1

    def merged(self, other: TensorStatistics) -> TensorStatistics:
        """The statistics of this set of samples followed by `other`."""
        histogram = self.histogram
        if histogram is not None and other.histogram is not None:
            histogram = histogram.merged(other.histogram)
        lows = np.concatenate([self.lows, other.lows])
        highs = np.concatenate([self.highs, other.highs])
        return TensorStatistics(lows, highs, histogram)


class Observer(Protocol):
    """Turns statistics into the range that the codes shall span."""

    NAME: ClassVar[str]

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        """Must the samples be read again to count the values of this tensor?"""

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        """The range of one tensor.

        Args:
            kind: the type that the tensor will have.
            choice: the observer's parameters.
        """
