"""Rendered lines for the PP-OCR recogniser: read them, clean and worn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from drawings import written
from pictures import planes
from PIL import Image
from tasks import Array, Figures, Sample, decibels
from verses import verses

from tilewright.assets.cache import asset_path

HEIGHT, WIDTH = 48, 480
LINES, WORDS = 100, 4
CALIBRATION = 32
CALIBRATION_SEED, CHOICE_SEED, DRAWING_SEED = 2024, 7, 3


class LineReading:
    """LINES phrases of one translation, clean and then worn; the other translation calibrates.

    Args:
        step: every step-th phrase is asked.
    """

    network = "ppocrv4-rec"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def calibration(self) -> Iterator[Sample]:
        rng = np.random.default_rng(CALIBRATION_SEED)
        pool = _openings("bbe")
        for number, index in enumerate(rng.choice(len(pool), CALIBRATION, replace=False)):
            picture = written(pool[index], rng, worn=number % 2 == 1)
            yield (padded(picture.resize((min(WIDTH, picture.width), HEIGHT))),)

    def questions(self) -> list[Sample]:
        return [
            (padded(_scaled(picture)),)
            for worn in (False, True)
            for picture in self._drawn(worn=worn)
        ]

    def _drawn(self, *, worn: bool) -> list[Image.Image]:
        """All phrases are drawn, so that the generator is in the same state at each."""
        rng = np.random.default_rng(DRAWING_SEED)
        return [written(phrase, rng, worn=worn) for phrase in phrases()][:: self.step]

    def figures(self, answers: Array) -> Figures:
        wanted = [_unspaced(phrase) for phrase in phrases()[:: self.step]]
        letters = alphabet()
        found = [_unspaced(read(steps, letters)) for steps in answers]
        result: Figures = {}
        for kind, part in zip(("clean", "hard"), np.split(np.arange(len(found)), 2), strict=True):
            pairs = [(found[i], truth) for i, truth in zip(part, wanted, strict=True)]
            errors = sum(edit_distance(a, b) for a, b in pairs)
            result[f"{kind} lines exact"] = float(np.mean([a == b for a, b in pairs]))
            result[f"{kind} character error"] = errors / sum(map(len, wanted))
        return result

    def comparison(self, exact: Array, found: Array) -> Figures:
        same = exact.argmax(-1) == found.argmax(-1)
        return {"same character %": 100 * float(same.mean()), "SQNR dB": decibels(exact, found)}


def _openings(translation: str) -> list[str]:
    """The first words of every verse that has as many."""
    split = (verse.split() for verse in verses(translation).values())
    return [" ".join(words[:WORDS]).strip(" ,;:.") for words in split if len(words) >= WORDS]


def phrases() -> list[str]:
    """What is written on the lines."""
    pool = _openings("asv")
    chosen = np.random.default_rng(CHOICE_SEED).choice(len(pool), LINES, replace=False)
    return [pool[index] for index in chosen]


def padded(picture: Image.Image) -> Array:
    """BGR planes [1, 3, HEIGHT, WIDTH] on -1..1, mean grey at the right."""
    value = planes(picture.convert("RGB"), 127.5, 127.5)[:, ::-1]
    room = WIDTH - value.shape[3]
    return np.ascontiguousarray(np.pad(value, ((0, 0), (0, 0), (0, 0), (0, room))))


def _scaled(picture: Image.Image) -> Image.Image:
    natural = max(1, round(picture.width * HEIGHT / picture.height))
    return picture.resize((min(natural, WIDTH), HEIGHT), Image.Resampling.BILINEAR)


def alphabet() -> list[str]:
    """Character of each class: nothing first, a space last, the model's own between."""
    model = onnx.load(asset_path(LineReading.network))
    listed = next(p.value for p in model.metadata_props if p.key == "character")
    return ["", *listed.splitlines(), " "]


def read(scores: Array, letters: Sequence[str]) -> str:
    """Best class of each time step, repetitions and nothing left out: [steps, classes] -> text."""
    best = scores.argmax(-1)
    changes = np.flatnonzero(np.diff(best, prepend=-1))
    return "".join(letters[best[i]] for i in changes)


def _unspaced(text: str) -> str:
    return text.replace(" ", "")


def edit_distance(a: str, b: str) -> int:
    """Least number of insertions, deletions and replacements (Levenshtein)."""
    above = list(range(len(b) + 1))
    for row, x in enumerate(a, 1):
        current = [row]
        for column, y in enumerate(b, 1):
            replaced = above[column - 1] + (x != y)
            current.append(min(replaced, above[column] + 1, current[-1] + 1))
        above = current
    return above[-1]
