"""A folder of pictures, .npy or .bin files, sub-folders included, sorted by relative path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewright.data.preprocess import InputDescription
from tilewright.data.sources.base import digest_of, only_input, unreadable
from tilewright.data.values import Value, decode, is_sample_file
from tilewright.errors import DataError


class FolderSource:
    """One sample per file of the folder."""

    def __init__(self, folder: Path, inputs: Sequence[InputDescription]) -> None:
        self._folder = folder
        self._input = only_input(inputs, str(folder))
        self.names = sorted(_files_below(folder))
        if not self.names:
            raise DataError(
                f"folder {str(folder)!r} has no pictures, .npy or .bin files",
                fix="give a folder of samples, or random:N",
                code="TW-1202",
            )

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        for i in indices:
            name = self.names[i]
            yield {self._input.name: decode(self._bytes(name), name, self._input)}

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of((self.names[i], self._bytes(self.names[i])) for i in indices)

    def _bytes(self, name: str) -> bytes:
        path = self._folder / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error


def _files_below(folder: Path) -> Iterator[str]:
    for directory, subfolders, files in os.walk(folder):
        subfolders.sort()
        for file in files:
            relative = (Path(directory) / file).relative_to(folder).as_posix()
            if is_sample_file(relative):
                yield relative
