"""Pictures for ViT-S-focus: where is the subject?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pictures import IMAGENET_MEAN, IMAGENET_STD, planes
from PIL import Image
from tasks import Array, Figures, Sample, decibels

from tilewright.assets.cache import asset_path
from tilewright.assets.pictures import VIEWS_PER_PICTURE, calibration_views, pictures

SIZE = 224
SUBJECTS = {
    "astronaut": (90, 0, 430, 512),
    "chelsea": (60, 0, 400, 300),
    "coffee": (170, 40, 480, 330),
}
"""Photograph -> left, top, right, bottom of its subject in pixels."""


class Saliency:
    """Maps of three photographs with a known subject, and of the 70 labelled pictures.

    Args:
        step: every step-th of the labelled pictures is asked.
    """

    network = "vit-s-focus"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def calibration(self) -> Iterator[Sample]:
        for view in calibration_views(SIZE).pixels:
            yield (planes(view, IMAGENET_MEAN, IMAGENET_STD),)

    def questions(self) -> list[Sample]:
        views = [np.asarray(_fitted(_photo(name))[0]) for name in SUBJECTS]
        views += list(pictures(SIZE).pixels[::VIEWS_PER_PICTURE][:: self.step])
        return [(planes(view, IMAGENET_MEAN, IMAGENET_STD),) for view in views]

    def figures(self, answers: Array) -> Figures:
        """Mean saliency within the subject's box over that outside."""
        return {
            f"inside/outside {name}": _contrast(answers[index, 0], _photo(name), box)
            for index, (name, box) in enumerate(SUBJECTS.items())
        }

    def comparison(self, exact: Array, found: Array) -> Figures:
        return {
            "SQNR dB": decibels(exact, found),
            "SQNR worst dB": min(map(decibels, exact, found)),
            "mean difference": float(np.abs(exact - found).mean()),
        }


def _photo(name: str) -> Image.Image:
    with Image.open(asset_path(f"photo-{name}")) as picture:
        return picture.convert("RGB")


def _fitted(photo: Image.Image) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """The photograph in the middle of a black square, and the part of it that it covers."""
    ratio = SIZE / max(photo.size)
    small = photo.resize(
        (round(photo.width * ratio), round(photo.height * ratio)), Image.Resampling.BOX
    )
    left, top = (SIZE - small.width) // 2, (SIZE - small.height) // 2
    canvas = Image.new("RGB", (SIZE, SIZE))
    canvas.paste(small, (left, top))
    return canvas, (left, top, left + small.width, top + small.height)


def _contrast(heat: Array, photo: Image.Image, box: tuple[int, int, int, int]) -> float:
    _, (left, top, right, bottom) = _fitted(photo)
    x0, y0, x1, y1 = (int(place * SIZE / max(photo.size)) for place in box)
    covered, subject = np.zeros((2, SIZE, SIZE), bool)
    covered[top:bottom, left:right] = True
    subject[top + y0 : top + y1, left + x0 : left + x1] = True
    outside = float(heat[covered & ~subject].mean())
    return float(heat[covered & subject].mean()) / max(outside, 1e-9)
