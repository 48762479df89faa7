"""A list of sample files (`dataset.txt`): one line per sample, one column per input.

Paths are relative to the list.  Blank lines and lines that start with '#' are ignored.  With one
input the line may carry more columns, such as a label, which are ignored; a path with spaces is
taken whole when it exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewright.data.preprocess import InputDescription
from tilewright.data.sources.base import digest_of, unreadable
from tilewright.data.values import Value, decode
from tilewright.errors import DataError


class ListSource:
    """One sample per line; every file is known to exist when the source is opened."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._path = path
        self._inputs = tuple(inputs)
        self._rows = [self._columns(number, line) for number, line in _lines(path)]
        if not self._rows:
            raise DataError(
                f"list {str(path)!r} names no samples",
                fix="write one path per line, relative to the list",
                code="TW-1202",
            )
        self.names = [row[0] for row in self._rows]

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        for i in indices:
            row = zip(self._inputs, self._rows[i], strict=True)
            yield {d.name: decode(self._bytes(name), name, d) for d, name in row}

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of((name, self._bytes(name)) for i in indices for name in self._rows[i])

    def _columns(self, number: int, line: str) -> tuple[str, ...]:
        if len(self._inputs) == 1:
            whole = (line,) if (self._path.parent / line).is_file() else (line.split()[0],)
            return self._existing(number, whole)
        columns = tuple(line.split())
        if len(columns) != len(self._inputs):
            names = ", ".join(d.name for d in self._inputs)
            raise DataError(
                f"{self._path.name}:{number}: {len(columns)} columns, and the model has"
                f" {len(self._inputs)} inputs ({names})",
                fix="write one path per input on each line",
                code="TW-1207",
            )
        return self._existing(number, columns)

    def _existing(self, number: int, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not (self._path.parent / name).is_file():
                raise DataError(
                    f"{self._path.name}:{number}: there is no file {name!r} (relative to the list)",
                    code="TW-1201",
                )
        return names

    def _bytes(self, name: str) -> bytes:
        path = self._path.parent / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise DataError(f"list {str(path)!r} is not UTF-8 text", code="TW-1203") from error
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped
