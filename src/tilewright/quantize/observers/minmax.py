"""Min-max: everything that any sample reached."""

from __future__ import annotations

from typing import ClassVar

from tilewright.quantize.observers.base import TensorStatistics
from tilewright.quantize.ranges import ActivationType, Range
from tilewright.quantize.scheme import ObserverChoice


class MinMax:
    NAME: ClassVar[str] = "minmax"

    def needs_histogram(self, statistics: TensorStatistics) -> bool:
        return False

    def range(
        self, statistics: TensorStatistics, kind: ActivationType, choice: ObserverChoice
    ) -> Range:
        return statistics.range
