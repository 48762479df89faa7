"""Real ranges of tensors and the encodings made from them (section 1 of the arithmetic)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tilewright import numerics
from tilewright.graph import DType, Encoding

NEGLIGIBLE = 2.0**-100
"""What dead layers hold and make: smaller values, some below float32's normal numbers. Scales made
from them would vanish, or lie too far from their neighbours' for a multiplier."""


class Range(NamedTuple):
    """Values from `low` to `high`; zero is always inside."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def reach(self) -> float:
        """The largest absolute value."""
        return max(-self.low, self.high)


def with_zero(low: float, high: float) -> Range:
    return Range(min(low, 0.0), max(high, 0.0))


def union(ranges: Iterable[Range]) -> Range:
    """The smallest range that holds all of them."""
    listed = list(ranges)
    return Range(min(r.low for r in listed), max(r.high for r in listed))


def real_range(encoding: Encoding) -> Range:
    """What the codes of an encoding can stand for."""
    lo, hi = encoding.dtype.range
    scale, zero = float(encoding.scale), encoding.zero_point
    return with_zero(scale * (lo - zero), scale * (hi - zero))


@dataclass(frozen=True)
class ActivationType:
    """How one activation is quantized.

    Args:
        dtype: u8, s8 or s16 (always symmetric).
        symmetric: zero point in the middle of the type; u8 tensors that are never negative keep
            zero point 0.
        power_of_two: scales are powers of two.
    """

    dtype: DType
    symmetric: bool = False
    power_of_two: bool = False

    def encode(self, reals: Range) -> Encoding:
        """The encoding whose codes span `reals`; a range that is all but zero counts as zero."""
        if reals.reach < NEGLIGIBLE:
            reals = Range(0.0, 0.0)
        lo, hi = self.dtype.range
        if self.dtype is DType.U8 and self.symmetric:
            zero, levels = (0, 255) if reals.low >= 0 else (128, 127)
            return Encoding(
                DType.U8, self._scale(numerics.symmetric_scale(reals.reach, levels)), zero
            )
        if self.symmetric or self.dtype is DType.S16:
            return Encoding(self.dtype, self._scale(numerics.symmetric_scale(reals.reach, hi)), 0)
        scale, zero = numerics.affine_parameters(reals.low, reals.high, lo, hi)
        if self.power_of_two and reals.width > 0:
            scale = self._scale(scale)
            zero = min(max(numerics.rne(lo - reals.low / scale), lo), hi)
        return Encoding(self.dtype, scale, zero)

    @property
    def levels(self) -> int:
        """Steps between the lowest and the highest code in use."""
        lo, hi = self.dtype.range
        return 2 * hi if self.symmetric and self.dtype is not DType.U8 else hi - lo

    def spanned(self, reals: Range) -> Range:
        """What the codes span when fitted to `reals`: more, where the type is symmetric."""
        if self.dtype is DType.S16 or (
            self.symmetric and (self.dtype is DType.S8 or reals.low < 0)
        ):
            return Range(-reals.reach, reals.reach)
        return reals

    def _scale(self, scale: float) -> float:
        return numerics.power_of_two_at_least(scale) if self.power_of_two else scale


S16 = ActivationType(DType.S16, symmetric=True)
