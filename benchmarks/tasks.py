"""What a task asks of a network with one output, and the figures that several tasks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.evaluation.statistics import NoiseRatio

Array = npt.NDArray[Any]
Sample = tuple[Array, ...]
"""An array for each input, in the model's order."""

Figures = dict[str, float]
"""What is measured -> value; the names end in their unit."""


class Task(Protocol):
    """Questions to one network, fixed by seeds, and how its answers are judged.

    Attributes:
        network: its name in `models.REAL`.
    """

    network: str

    def calibration(self) -> Iterable[Sample]:
        """The samples that ranges are set on, none of which is asked."""

    def questions(self) -> Sequence[Sample]:
        """What is asked."""

    def figures(self, answers: Array) -> Figures:
        """How good one model's answers [question, ...] are."""

    def comparison(self, exact: Array, found: Array) -> Figures:
        """How near answers are to float's."""


def decibels(exact: Array, found: Array) -> float:
    """Signal-to-noise ratio of all answers together; 0 for a signal of nothing."""
    ratio = NoiseRatio()
    for a, b in zip(exact, found, strict=True):
        ratio.add(a, b)
    return ratio.decibels or 0.0


def cosines(exact: Array, found: Array) -> Array:
    """Of each answer, flattened: [question]."""
    a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (exact, found))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / np.maximum(lengths, 1e-30))
