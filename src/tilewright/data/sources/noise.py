"""`random:N`: seeded noise of every input's shape and type, for structure and speed tests only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.data.preprocess import Array, InputDescription, image_form
from tilewright.data.values import Picture, Value


class NoiseSource:
    """N samples, each from a generator seeded by (seed, index): order and count do not matter."""

    def __init__(self, count: int, seed: int, inputs: Sequence[InputDescription]) -> None:
        self._seed = seed
        self._inputs = tuple(inputs)
        self.names = [f"random#{i}" for i in range(count)]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        for i in indices:
            rng = np.random.default_rng([self._seed, i])
            yield {d.name: _noise(d, rng) for d in self._inputs}

    def fingerprint(self, indices: Sequence[int]) -> str:
        described = [(d.name, d.shape, str(d.dtype)) for d in self._inputs]
        return hashlib.sha256(
            f"random {self._seed} {list(indices)} {described}".encode()
        ).hexdigest()


def _noise(description: InputDescription, rng: np.random.Generator) -> Value:
    shape, dtype = description.shape, description.dtype
    if description.is_image and shape[0] == 1:
        form = image_form(description)
        size = (form.height, form.width, 3)
        return Picture(rng.integers(0, 256, size, dtype=np.uint8))
    return _numbers(shape, dtype, rng)


def _numbers(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    """Standard normal for floats; small counts, valid as token ids or masks, for integers."""
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    if dtype in (np.uint8, np.int8):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape, dtype=dtype)
    return rng.integers(0, 2, shape).astype(dtype)
