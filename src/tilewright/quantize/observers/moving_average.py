"""Moving average of the samples' minima and maxima: r = momentum*r + (1 - momentum)*sample."""

from __future__ import annotations

from typing import ClassVar

from tilewright.quantize.observers.base import FloatArray, TensorStatistics
from tilewright.quantize.ranges import ActivationType, Range, with_zero
from tilewright.quantize.scheme import ObserverChoice


class MovingAverage:
    NAME: ClassVar[str] = "moving_average"

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        return False

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        return with_zero(
            _average(statistics.lows, choice.momentum), _average(statistics.highs, choice.momentum)
        )


def _average(values: FloatArray, momentum: float) -> float:
    average = float(values[0])
    for value in values[1:]:
        average = momentum * average + (1 - momentum) * float(value)
    return average
