"""Observers: how the range of an activation is found.  One file each, one interface (`base`)."""

from __future__ import annotations

from tilewright.quantize.observers.base import Histogram, Observer, TensorStatistics
from tilewright.quantize.observers.kl import KullbackLeibler
from tilewright.quantize.observers.minmax import MinMax
from tilewright.quantize.observers.moving_average import MovingAverage
from tilewright.quantize.observers.mse import MeanSquaredError
from tilewright.quantize.observers.percentile import Percentile

OBSERVERS: dict[str, Observer] = {
    observer.NAME: observer
    for observer in (MinMax(), MovingAverage(), Percentile(), MeanSquaredError(), KullbackLeibler())
}
"""Name in the configuration -> observer."""

__all__ = ["OBSERVERS", "Histogram", "Observer", "TensorStatistics"]
