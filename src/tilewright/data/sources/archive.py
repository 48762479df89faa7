"""A .tar, .tar.gz or .zip of pictures, .npy or .bin files, read without unpacking.

A compressed tar cannot be read out of order, so it is decompressed once into an anonymous temporary
file; memory stays bounded by one member.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tilewright.data.preprocess import InputDescription
from tilewright.data.sources.base import digest_of, only_input, open_data
from tilewright.data.values import Value, decode, is_sample_file
from tilewright.errors import DataError

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError)


class ArchiveSource:
    """One sample per member, sorted by member name."""

    def __init__(self, path: Path, inputs: Sequence[InputDescription]) -> None:
        self._path = path
        self._input = only_input(inputs, str(path))
        self._stream = open_data(path)
        try:
            self._members = self._open_zip() if self._is_zip() else self._open_tar()
        except _BROKEN as error:
            raise self._broken("", error) from error
        self.names = sorted(self._members)
        if not self.names:
            raise DataError(
                f"archive {str(path)!r} has no pictures, .npy or .bin files",
                fix="give an archive of samples, or random:N",
                code="TW-1202",
            )

    def read(self, indices: Sequence[int]) -> Iterator[Mapping[str, Value]]:
        for i in indices:
            name = self.names[i]
            shown = f"{self._path.name}/{name}"
            yield {self._input.name: decode(self._bytes(name), shown, self._input)}

    def fingerprint(self, indices: Sequence[int]) -> str:
        return digest_of((self.names[i], self._bytes(self.names[i])) for i in indices)

    def _is_zip(self) -> bool:
        return self._path.suffix.lower() == ".zip"

    def _open_zip(self) -> dict[str, zipfile.ZipInfo | tarfile.TarInfo]:
        self._zip = zipfile.ZipFile(self._stream)
        return {
            m.filename: m
            for m in self._zip.infolist()
            if not m.is_dir() and is_sample_file(m.filename)
        }

    def _open_tar(self) -> dict[str, zipfile.ZipInfo | tarfile.TarInfo]:
        plain = _plain_tar(self._path, self._stream)
        self._tar = tarfile.TarFile(fileobj=plain)
        members: dict[str, zipfile.ZipInfo | tarfile.TarInfo]
        members = {m.name: m for m in self._tar if m.isfile() and is_sample_file(_clean(m.name))}
        plain.seek(0, os.SEEK_END)
        if 0 < plain.tell() - self._tar.offset < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it ends inside a header")
        return members

    def _bytes(self, name: str) -> bytes:
        member = self._members[name]
        try:
            if isinstance(member, zipfile.ZipInfo):
                return self._zip.read(member)
            stream = self._tar.extractfile(member)
            data = stream.read() if stream is not None else b""
        except _BROKEN as error:
            raise self._broken(f"/{name}", error) from error
        if len(data) != member.size:
            raise self._broken(f"/{name}", EOFError("it ends early"))
        return data

    def _broken(self, member: str, error: Exception) -> DataError:
        return DataError(
            f"{self._path.name}{member}: not a readable archive ({error or type(error).__name__})",
            fix="pack it again",
            code="TW-1203",
        )


def _clean(name: str) -> str:
    """Member names often start with './', which is not a hidden folder."""
    return name.removeprefix("./")


def _plain_tar(path: Path, stream: IO[bytes]) -> IO[bytes]:
    """An uncompressed, seekable view of the tar file."""
    if path.suffix.lower() == ".tar":
        return stream
    import bz2
    import gzip
    import lzma

    name = path.name.lower()
    opener = bz2.open if name.endswith(".bz2") else lzma.open if name.endswith(".xz") else gzip.open
    plain = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the source
    with opener(stream) as compressed:
        shutil.copyfileobj(compressed, plain, 1 << 20)
    plain.seek(0)
    return plain
