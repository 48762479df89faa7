"""The published picture sets: 32 views to calibrate on, 700 and 500 labelled views to score.

They are defined by the asset table and seeded crops, so that anyone gets the same arrays.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewright.assets.cache import asset_path, cache_directory
from tilewright.assets.table import own_table
from tilewright.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

U8 = npt.NDArray[np.uint8]

CENTRAL_SHARE = 224 / 256
CALIBRATION_SEED = 2024
VIEWS_PER_PICTURE = 10
SETS = ("calibration", "pictures", "tiny")


@dataclass(frozen=True)
class Views:
    """Pictures of one size.

    Attributes:
        pixels: u8 [n, size, size, 3], RGB.
        labels: int64 [n], ImageNet-1k class, -1 where unknown.
        names: source file and number of the view.
    """

    pixels: U8
    labels: npt.NDArray[np.int64]
    names: list[str]


def load_views(name: str, size: int) -> Views:
    """One of the sets: calibration, pictures or tiny.

    Raises:
        DataError: an unknown set, or its assets have not been fetched.
    """
    makers = {"calibration": calibration_views, "pictures": pictures, "tiny": tiny}
    if name not in makers:
        raise DataError(
            f"no picture set is called {name!r}", fix=f"choose one of {', '.join(SETS)}"
        )
    return makers[name](size)


def calibration_views(size: int, count: int = 32) -> Views:
    """Random crops of the permissively licensed photographs; the cat of the demo is left out.

    Every second view is mirrored.  The generator is seeded, and the photographs come in the order
    of their file names, so that the first `count` views never change.
    """
    rng = np.random.default_rng(CALIBRATION_SEED)
    files = calibration_photos()

    def views() -> Iterator[tuple[U8, int, str]]:
        for i in range(count):
            file = files[i % len(files)]
            yield _crop(_open(file), size, rng, i % 2 == 1), -1, f"{file.name}#{i}"

    return _stack(views())


def pictures(size: int) -> Views:
    """Ten views of each of the 70 labelled pictures: 700.

    View 0 of each (index % 10 == 0) is the central one, which top-1 is measured on; nine seeded
    crops follow, every second one mirrored, for agreement and signal-to-noise ratio.
    """

    def views() -> Iterator[tuple[U8, int, str]]:
        for relative, label in _labels():
            if relative.startswith("tiny"):
                continue
            picture = _open(_image(relative))
            rng = np.random.default_rng(label)
            yield central_view(picture, size), label, f"{relative}#0"
            for k in range(1, VIEWS_PER_PICTURE):
                yield _crop(picture, size, rng, k % 2 == 1), label, f"{relative}#{k}"

    return _stack(views())


def tiny(size: int) -> Views:
    """The 500 labelled 64x64 pictures, central view, enlarged."""
    from PIL import Image

    def views() -> Iterator[tuple[U8, int, str]]:
        for relative, label in _labels():
            if relative.startswith("tiny"):
                picture = Image.fromarray(np.load(_image(relative)))
                yield central_view(picture, size), label, relative

    return _stack(views())


def calibration_photos() -> list[Path]:
    """The photographs of the table, sorted by file name, without the demo's cat."""
    names = [n for n in own_table() if n.startswith("photo-") and n != "photo-chelsea"]
    return sorted((asset_path(n) for n in names), key=lambda path: path.name)


def central_view(picture: Image.Image, size: int) -> U8:
    """The central square of 224/256 of the shorter side, bicubic."""
    side = min(picture.size) * CENTRAL_SHARE
    return _resize(picture, size, (picture.width - side) / 2, (picture.height - side) / 2, side)


def _crop(picture: Image.Image, size: int, rng: np.random.Generator, mirror: bool) -> U8:
    side = min(picture.size) * rng.uniform(0.55, 1.0)
    x = rng.uniform(0, picture.width - side)
    y = rng.uniform(0, picture.height - side)
    view = _resize(picture, size, x, y, side)
    return view[:, ::-1] if mirror else view


def _resize(picture: Image.Image, size: int, x: float, y: float, side: float) -> U8:
    from PIL import Image

    box = (x, y, x + side, y + side)
    return np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC, box))


def _open(path: Path) -> Image.Image:
    from PIL import Image

    with Image.open(path) as picture:
        return picture.convert("RGB")


def _stack(views: Iterator[tuple[U8, int, str]]) -> Views:
    pixels, labels, names = zip(*views, strict=True)
    return Views(np.stack(pixels), np.array(labels, dtype=np.int64), list(names))


def _image(relative: str) -> Path:
    asset_path(relative.split("/")[0])
    return cache_directory() / "images" / relative


@cache
def _labels() -> tuple[tuple[str, int], ...]:
    text = resources.files(__package__).joinpath("val_labels.csv").read_text("utf-8")
    return tuple((row["picture"], int(row["class"])) for row in csv.DictReader(text.splitlines()))
