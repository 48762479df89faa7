"""Labelled pictures from a folder or a tar: `<class>/<name>.jpg`, the class being the folder."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch import Tensor

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
"""CIFAR-10's, of pixels in 0..1."""

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})


def files(source: Path) -> Iterator[tuple[str, bytes]]:
    """The class and the encoded bytes of every picture of a folder or tar, in a fixed order."""
    if source.is_dir():
        for path in sorted(source.glob("*/*")):
            if path.suffix.lower() in SUFFIXES:
                yield path.parent.name, path.read_bytes()
        return
    with tarfile.open(source) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            name = PurePosixPath(member.name)
            content = archive.extractfile(member)
            if content is not None and name.suffix.lower() in SUFFIXES:
                yield name.parent.name, content.read()


def load(source: Path) -> tuple[Tensor, Tensor]:
    """Pictures uint8 [N, 3, 32, 32] (RGB) and labels int64 [N]."""
    arrays, labels = [], []
    for label, content in files(source):
        with Image.open(BytesIO(content)) as picture:
            arrays.append(np.asarray(picture.convert("RGB")))
        labels.append(CLASSES.index(label))
    if not arrays:
        raise SystemExit(f"{source} holds no pictures named <class>/<name>.jpg")
    pictures = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
    return pictures, torch.tensor(labels)


def normalise(pictures: Tensor) -> Tensor:
    """Pixels 0..255 [N, 3, H, W] to the network's input, float32."""
    mean = torch.tensor(MEAN).view(3, 1, 1) * 255
    std = torch.tensor(STD).view(3, 1, 1) * 255
    return (pictures.float() - mean) / std
