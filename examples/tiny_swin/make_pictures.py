"""Cut the 64 small pictures of pictures.png from photos that anyone may publish.

They have no classes: they are for telling whether a quantized network agrees with its float one.
The photos are assets of the project (`tilewright assets`), from the scikit-image package: NASA's
and in the public domain (astronaut, Hubble deep field), or CC0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from tilewright.assets.cache import cache_directory

PHOTOS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "hubble_deep_field.jpg",
    "camera.png",
    "grass.png",
    "brick.png",
)
SIZE = 32
PER_PHOTO = 8
SEED = 32
SMALLEST_SHARE = 0.25
"""Side of the smallest square that is cut, as a share of the photo's shorter side."""


def crops(photo: Image.Image, random: np.random.Generator) -> list[Image.Image]:
    """Squares of a photo, of random size and place, scaled to 32x32."""
    small = []
    for _ in range(PER_PHOTO):
        side = round(random.uniform(SMALLEST_SHARE, 1.0) * min(photo.size))
        left = int(random.integers(photo.width - side + 1))
        top = int(random.integers(photo.height - side + 1))
        box = (left, top, left + side, top + side)
        small.append(photo.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box))
    return small


def sheet(photos: Path) -> Image.Image:
    """One row of pictures for each photo."""
    random = np.random.default_rng(SEED)
    whole = Image.new("RGB", (PER_PHOTO * SIZE, len(PHOTOS) * SIZE))
    for row, name in enumerate(PHOTOS):
        with Image.open(photos / name) as photo:
            small = crops(photo.convert("RGB"), random)
        for column, picture in enumerate(small):
            whole.paste(picture, (column * SIZE, row * SIZE))
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path, help="the PNG to write")
    arguments = parser.parse_args()
    sheet(cache_directory() / "images" / "photos").save(arguments.sheet, optimize=True)


if __name__ == "__main__":
    main()
