"""Picture sets as u8 views, and the conversions from views to model inputs.

`pictures`, `tiny` and `calibration` come with `tilewright fetch benchmarks`.  `sample` is a folder
that the caller points at: NAME.tar of pictures, NAME.csv with the columns `picture` and `class`.
"""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tilewright.assets.pictures import Views, central_view, load_views

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

SAMPLE = "imagenet-sample-800"


def views_of(name: str, size: int, data: Path | None = None) -> Views:
    """One set, central views of the labelled sample among them.

    Args:
        name: calibration, pictures, tiny or sample.
        data: the folder of `sample`.
    """
    return _sample(data, size) if name == "sample" and data is not None else load_views(name, size)


def _sample(data: Path, size: int) -> Views:
    with (data / f"{SAMPLE}.csv").open(newline="") as stream:
        classes = {row["picture"]: int(row["class"]) for row in csv.DictReader(stream)}
    pixels, labels, names = [], [], []
    with tarfile.open(data / f"{SAMPLE}.tar") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None:
                continue
            with Image.open(io.BytesIO(content.read())) as picture:
                pixels.append(central_view(picture.convert("RGB"), size))
            labels.append(classes[member.name])
            names.append(member.name)
    return Views(np.stack(pixels), np.array(labels, dtype=np.int64), names)


def planes(picture: Any, mean: Any, std: Any) -> F32:
    """A picture [H, W, 3] on 0..255 as float32 [1, 3, H, W], `(x - mean) / std`."""
    return np.ascontiguousarray(rows(picture, mean, std).transpose(0, 3, 1, 2))


def rows(picture: Any, mean: Any, std: Any) -> F32:
    """As `planes`, channels last."""
    pixels = np.asarray(picture, np.float32)
    normal = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(normal[None], dtype=np.float32)


def bgr(picture: Any) -> U8:
    """The picture with its channels in the other order."""
    return np.ascontiguousarray(np.asarray(picture)[..., ::-1])
