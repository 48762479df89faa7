"""Views of faces: of the one portrait among the assets, and of any folder of portraits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tilewright.assets.cache import asset_path

PORTRAIT = "photo-astronaut"
FACE = (177.0, 57.0, 273.0, 193.0)
"""Left, top, right, bottom of the portrait's face in its 512x512 pixels."""
EYES = ((188.0, 85.0), (239.0, 86.0))
"""Centres of the portrait's eyes."""
EYE_SIDE = 30.0

SEED = 2024


def portrait() -> Image.Image:
    """The portrait, RGB."""
    with Image.open(asset_path(PORTRAIT)) as picture:
        return picture.convert("RGB")


def _square(
    picture: Image.Image, centre: tuple[float, float], side: float, size: int
) -> Image.Image:
    x, y = centre[0] - side / 2, centre[1] - side / 2
    box = (x, y, x + side, y + side)
    return picture.transform((size, size), Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)


def _jittered(
    picture: Image.Image,
    centres: tuple[tuple[float, float], ...],
    side: float,
    size: int,
    count: int,
) -> Iterator[Image.Image]:
    rng = np.random.default_rng(SEED)
    for index in range(count):
        centre = centres[index % len(centres)]
        moved = (centre[0] + rng.normal(0, side / 20), centre[1] + rng.normal(0, side / 20))
        view = _square(picture, moved, side * rng.uniform(0.85, 1.15), size)
        pixels = np.asarray(view, np.float32) * rng.uniform(0.6, 1.2)
        view = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        yield view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if index % 2 else view


def crops(size: int, margin: float, count: int) -> Iterator[Image.Image]:
    """Square crops, `margin` times the face's height, jittered in place, size and light."""
    left, top, right, bottom = FACE
    centre = ((left + right) / 2, (top + bottom) / 2)
    return _jittered(portrait(), (centre,), (bottom - top) * margin, size, count)


def eyes(size: int, count: int) -> Iterator[Image.Image]:
    """Square crops around the two eyes."""
    return _jittered(portrait(), EYES, EYE_SIDE, size, count)


def scenes(pictures: list[Image.Image], each: int) -> Iterator[Image.Image]:
    """Each picture, and `each - 1` seeded crops of it, every second one mirrored."""
    rng = np.random.default_rng(SEED + 1)
    for picture in pictures:
        yield picture
        for index in range(1, each):
            width, height = (int(n * rng.uniform(0.6, 1)) for n in picture.size)
            x = int(rng.integers(0, picture.width - width + 1))
            y = int(rng.integers(0, picture.height - height + 1))
            part = picture.crop((x, y, x + width, y + height))
            mirrored = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            yield mirrored if index % 2 else part


def portraits_in(folder: Path) -> list[Image.Image]:
    """Every picture of a folder, sorted by name."""
    kinds = {".png", ".jpg", ".jpeg"}
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in kinds):
        with Image.open(path) as picture:
            found.append(picture.convert("RGB"))
    return found
