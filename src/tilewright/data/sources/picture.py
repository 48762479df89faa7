"""A single picture file: a set of one sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewright.data.preprocess import InputDescription
from tilewright.data.sources.base import digest_of, only_input, open_data
from tilewright.data.values import Value, decode_picture


class PictureSource:
    """The picture as the only sample."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._input = only_input(inputs, str(path))
        with open_data(path) as stream:
            self._data = stream.read()
        self.names = [path.name]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        for i in indices:
            yield {self._input.name: decode_picture(self._data, self.names[i])}

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of((self.names[i], self._data) for i in indices)
