"""Samples stacked in one .npy array, or one array per input in an .npz file.

Arrays are read sample by sample from the file's own stream, so a large or compressed file never
stands in memory as a whole.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from tilewright.data.preprocess import Array, InputDescription
from tilewright.data.sources.base import digest_of_file, only_input, open_data
from tilewright.data.values import Value, as_value
from tilewright.errors import DataError


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


class NpySource:
    """One array: the first axis counts samples, unless the whole array is one sample."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._path = path
        self._input = only_input(inputs, str(path))
        with open_data(path) as stream:
            self._header = _read_header(stream, path.name)
        count = _sample_count(self._header, self._input, path.name)
        self.names = [f"{path.name}#{i}" for i in range(count)]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        with open_data(self._path) as stream:
            for array in _read_samples(stream, self._path.name, self._input, indices):
                yield {self._input.name: as_value(array, self._input)}

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of_file(self._path, indices)


class NpzSource:
    """One array per input, under the input's name; a model with one input also takes any name."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._path = path
        try:
            self._archive = zipfile.ZipFile(open_data(path))
        except zipfile.BadZipFile as error:
            raise DataError(f"{path.name}: not a readable .npz file", code="TW-1203") from error
        stored = [n.removesuffix(".npy") for n in self._archive.namelist() if n.endswith(".npy")]
        self._columns = tuple((d, _array_for(d, inputs, stored, path.name)) for d in inputs)
        counts = {}
        for description, array in self._columns:
            with self._archive.open(array + ".npy") as stream:
                header = _read_header(stream, f"{path.name}/{array}")
            counts[array] = _sample_count(header, description, f"{path.name}/{array}")
        if len(set(counts.values())) != 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(
                f"{path.name}: its arrays have different numbers of samples ({listed})",
                code="TW-1207",
            )
        self.names = [f"{path.name}#{i}" for i in range(next(iter(counts.values())))]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        streams = [self._archive.open(array + ".npy") for _, array in self._columns]
        readers = [
            _read_samples(stream, f"{self._path.name}/{array}", description, indices)
            for stream, (description, array) in zip(streams, self._columns, strict=True)
        ]
        try:
            for arrays in zip(*readers, strict=True):
                columns = zip(self._columns, arrays, strict=True)
                yield {d.name: as_value(array, d) for (d, _), array in columns}
        finally:
            for stream in streams:
                stream.close()

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of_file(self._path, indices)


def _array_for(
    description: InputDescription, inputs: Sequence[InputDescription], stored: list[str], file: str
) -> str:
    if description.name in stored:
        return description.name
    if len(inputs) == 1 and ("x" in stored or len(stored) == 1):
        return "x" if "x" in stored else stored[0]
    raise DataError(
        f"{file}: no array for input {description.name!r} among {', '.join(stored) or 'none'}",
        fix="store one array per input under its name",
        code="TW-1207",
    )


def _read_header(stream: IO[bytes], name: str) -> _Header:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        header = _Header(*read(stream))
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{name}: not a readable .npy array", code="TW-1203") from error
    if header.dtype.hasobject:
        raise DataError(f"{name}: an array of Python objects is not read", code="TW-1203")
    return header


def _is_one_sample(header: _Header, description: InputDescription) -> bool:
    shape = description.shape
    return header.shape == shape[1:] and shape[0] == 1 and len(header.shape) == len(shape) - 1


def _sample_count(header: _Header, description: InputDescription, name: str) -> int:
    if _is_one_sample(header, description):
        return 1
    if not header.shape or header.shape[0] == 0:
        raise DataError(f"{name}: the array {list(header.shape)} has no samples", code="TW-1202")
    return header.shape[0]


def _read_samples(
    stream: IO[bytes], name: str, description: InputDescription, indices: Sequence[int]
) -> Iterator[Array]:
    header = _read_header(stream, name)
    if header.fortran and len(header.shape) > 1:
        raise DataError(
            f"{name}: the array is in Fortran order",
            fix="save np.ascontiguousarray(x)",
            code="TW-1203",
        )
    whole = _is_one_sample(header, description)
    shape = header.shape if whole else header.shape[1:]
    size = int(np.prod(shape)) * header.dtype.itemsize
    position = 0
    for i in indices:
        _skip(stream, (i - position) * size)
        data = stream.read(size)
        if len(data) != size:
            raise DataError(f"{name}: the file ends in sample {i}", code="TW-1203")
        position = i + 1
        yield np.frombuffer(data, header.dtype).reshape(shape)


def _skip(stream: IO[bytes], count: int) -> None:
    if count:
        stream.seek(count, 1)
