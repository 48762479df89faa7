"""Sentences for MiniLM: find each verse's other translation among all of them.

Verses of Genesis 1 to 41, from which on one of the packages counts differently, are asked; later
ones calibrate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from tasks import Array, Figures, Sample, cosines, decibels
from verses import verses
from wordpiece import WordPiece

from tilewright.assets.cache import asset_path

LENGTH = 128
PAIRS = 300
CALIBRATION = 32
CALIBRATION_SEED, SEED = 2024, 23
GENESIS_42 = 1_042_000
SHORTEST, LONGEST = 40, 300
"""Characters, neither included."""


class VerseRetrieval:
    """Sentence vectors of PAIRS verses in both translations; the nearest one should be the same.

    Args:
        step: every step-th pair is asked.
    """

    network = "minilm-l6"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    @cached_property
    def tokenizer(self) -> WordPiece:
        return WordPiece.read(asset_path("minilm-tokenizer"))

    def calibration(self) -> Iterator[Sample]:
        pool = [v for key, v in verses("asv").items() if key >= GENESIS_42 and _fits(v)]
        rng = np.random.default_rng(CALIBRATION_SEED)
        for index in rng.choice(len(pool), CALIBRATION, replace=False):
            yield self.tokenizer.encode(pool[index], LENGTH)

    def questions(self) -> list[Sample]:
        left, right = verses("bbe"), verses("asv")
        shared = [
            key
            for key in left
            if key < GENESIS_42 and key in right and _fits(left[key]) and _fits(right[key])
        ]
        chosen = np.random.default_rng(SEED).choice(shared, PAIRS, replace=False)[:: self.step]
        return [
            self.tokenizer.encode(translation[key], LENGTH)
            for translation in (left, right)
            for key in chosen
        ]

    def figures(self, answers: Array) -> Figures:
        return {"retrieval top-1": _retrieved(answers)}

    def comparison(self, exact: Array, found: Array) -> Figures:
        nearness = cosines(exact, found)
        unit = found / np.linalg.norm(found, axis=1, keepdims=True)
        return {
            "top-1, vectors normalised": _retrieved(unit),
            "cosine mean": float(nearness.mean()),
            "cosine worst": float(nearness.min()),
            "SQNR dB": decibels(exact, found),
        }


def _fits(verse: str) -> bool:
    return SHORTEST < len(verse) < LONGEST


def _retrieved(answers: Array) -> float:
    """Share of the first half whose largest product is that with its partner in the second."""
    left, right = np.split(answers, 2)
    return float(((left @ right.T).argmax(1) == np.arange(len(left))).mean())
