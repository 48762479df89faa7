"""Files for Magika: what type is each?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tasks import Array, Figures, Sample, cosines, decibels

from tilewright.assets.cache import asset_path, cache_directory
from tilewright.assets.table import own_table

LIBRARY = Path(os.__file__).parent
BLOCK, PART = 4096, 1024
"""Bytes looked at of each end, and bytes kept of them."""


class FileTypes:
    """Pictures, networks, Python modules and JSON of the cache and of the standard library.

    Args:
        step: every step-th file is asked.
    """

    network = "magika"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def calibration(self) -> Iterator[Sample]:
        asset_path("imagenet-50")
        paths = [
            *sorted(LIBRARY.glob("*.py"))[60:76],
            *sorted(LIBRARY.glob("*/*.py"))[:8],
            *sorted((cache_directory() / "images" / "imagenet-50").glob("*.png"))[:4],
            *(asset_path(n) for n in ("minilm-tokenizer", "verses-asv", "verses-bbe")),
            asset_path("magika-config"),
        ]
        for path in paths:
            yield (excerpt(path),)

    def questions(self) -> list[Sample]:
        return [(excerpt(path),) for path, _ in self._labelled()]

    def _labelled(self) -> list[tuple[Path, str]]:
        """Files with their types; of the pictures, all that the cache has."""
        images = cache_directory() / "images"
        models = [e.name for e in own_table().values() if e.kind == "model"]
        found = [(path, "png") for path in sorted((images / "photos").glob("*.png"))]
        found += [(path, "jpeg") for path in sorted(images.glob("*/*.jpg"))]
        found += [(asset_path(name), "onnx") for name in models]
        found += [(path, "python") for path in sorted(LIBRARY.glob("*.py"))[:60]]
        names = ("imagenet-names", "imagenet-val-labels", "imagenet-wnids")
        found += [(asset_path(name), "json") for name in names]
        return found[:: self.step]

    def figures(self, answers: Array) -> Figures:
        labels = _config()["target_labels_space"]
        best = answers.reshape(len(answers), -1).argmax(1)
        right = [labels[c] == kind for c, (_, kind) in zip(best, self._labelled(), strict=True)]
        return {"right": float(np.mean(right))}

    def comparison(self, exact: Array, found: Array) -> Figures:
        a, b = (x.reshape(len(x), -1) for x in (exact, found))
        return {
            "agreement %": 100 * float((a.argmax(1) == b.argmax(1)).mean()),
            "cosine mean": float(cosines(exact, found).mean()),
            "SQNR dB": decibels(exact, found),
        }


def _config() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(asset_path("magika-config").read_text(encoding="utf-8"))
    return content


def excerpt(path: Path) -> Array:
    """Both ends of a file without outer white space, what is missing padded: i32 [1, 2048]."""
    data = path.read_bytes()
    begin, end = data[:BLOCK].lstrip()[:PART], data[-BLOCK:].rstrip()[-PART:]
    value = np.full((1, 2 * PART), _config()["padding_token"], np.int32)
    value[0, : len(begin)] = list(begin)
    value[0, 2 * PART - len(end) :] = list(end)
    return value
