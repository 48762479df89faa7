"""What every source of samples provides, and the hashing that they share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from tilewright.data.preprocess import InputDescription
from tilewright.data.values import Value
from tilewright.errors import DataError


class Source(Protocol):
    """Named samples that can be read in increasing order of their index."""

    @property
    def names(self) -> Sequence[str]:
        """One name per sample, in order."""

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        """The values of each sample by input name; `indices` increase."""

    def fingerprint(self, indices: Sequence[int]) -> str:
        """Hex digest of names and content; the same wherever the data lies."""


def digest_of(parts: Iterable[tuple[str, bytes]]) -> str:
    """sha256 over names, sizes and the content's own sha256."""
    total = hashlib.sha256()
    for name, content in parts:
        inner = hashlib.sha256(content).hexdigest()
        total.update(f"{name}\0{len(content)}\0{inner}\n".encode())
    return total.hexdigest()


def digest_of_file(path: Path, indices: Sequence[int]) -> str:
    """sha256 of one file that holds all samples, and of which of them are taken."""
    with open_data(path) as stream:
        inner = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashlib.sha256(f"{path.name}\0{inner}\0{list(indices)}".encode()).hexdigest()


def open_data(path: Path) -> BufferedReader:
    """Open for binary reading; a failure is a DataError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """The error of a data file that the system does not let us read."""
    return DataError(f"cannot read {str(path)!r}: {error.strerror or error}", code="TW-1201")


def only_input(inputs: Sequence[InputDescription], source: str) -> InputDescription:
    """The single input of a model; several need a source with one column per input."""
    if len(inputs) != 1:
        names = ", ".join(d.name for d in inputs)
        raise DataError(
            f"{source!r} gives one array per sample, and the model has several inputs ({names})",
            fix="use a list file with a column per input, or an .npz with an array per input",
            code="TW-1207",
        )
    return inputs[0]
