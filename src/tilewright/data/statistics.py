"""Streaming statistics of what goes into a model, per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChannelStatistics:
    """Count, mean, squared deviation and range of each channel; merges with others exactly once.

    The pairwise update of Chan, Golub and LeVeque (1979) keeps it accurate in one pass.
    """

    count: int
    mean: F64
    deviation: F64
    low: F64
    high: F64

    @property
    def std(self) -> F64:
        """Standard deviation per channel."""
        return np.sqrt(self.deviation / self.count)

    def merge(self, other: ChannelStatistics) -> ChannelStatistics:
        """Statistics of both sets of values together."""
        count = self.count + other.count
        delta = other.mean - self.mean
        return ChannelStatistics(
            count,
            self.mean + delta * (other.count / count),
            self.deviation
            + other.deviation
            + np.square(delta) * (self.count * other.count / count),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def channel_statistics(x: npt.NDArray[Any], axis: int) -> ChannelStatistics:
    """Statistics of one array; `axis` is the channel axis."""
    flat = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1).astype(np.float64)
    low, high = flat.min(axis=1), flat.max(axis=1)
    mean = flat.mean(axis=1)
    flat -= mean[:, None]
    return ChannelStatistics(flat.shape[1], mean, np.einsum("ij,ij->i", flat, flat), low, high)


class InputStatistics:
    """Channel statistics over a stream of samples."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self.total: ChannelStatistics | None = None

    def add(self, x: npt.NDArray[Any]) -> None:
        """Take one sample's array into account."""
        part = channel_statistics(x, self._axis)
        self.total = part if self.total is None else self.total.merge(part)
