"""Algorithms on the float model, before calibration.  One file each, one interface (`base`)."""

from __future__ import annotations

from tilewright.quantize.algorithms.base import Algorithm, Changed
from tilewright.quantize.algorithms.equalization import Equalization

ALGORITHMS: dict[str, Algorithm] = {algorithm.NAME: algorithm for algorithm in (Equalization(),)}
"""Name in the configuration -> algorithm."""

__all__ = ["ALGORITHMS", "Algorithm", "Changed"]
