"""A .bin file: samples one after the other, raw little-endian elements of the input's type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.data.preprocess import InputDescription
from tilewright.data.sources.base import digest_of_file, only_input, open_data
from tilewright.data.values import Value, from_raw
from tilewright.errors import DataError


class RawSource:
    """One or more samples in a file without a header."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._path = path
        self._input = only_input(inputs, str(path))
        self._size = int(np.prod(self._input.shape)) * self._input.dtype.itemsize
        total = path.stat().st_size
        if total == 0 or total % self._size:
            raise DataError(
                f"{path.name}: {total} bytes are not whole samples of {self._size} bytes"
                f" ({self._input.dtype} {list(self._input.shape)})",
                fix="write raw elements of the input's type and shape",
                code="TW-1204",
            )
        count = total // self._size
        self.names = [path.name] if count == 1 else [f"{path.name}#{i}" for i in range(count)]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        with open_data(self._path) as stream:
            for i in indices:
                stream.seek(i * self._size)
                yield {
                    self._input.name: from_raw(stream.read(self._size), self.names[i], self._input)
                }

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of_file(self._path, indices)
