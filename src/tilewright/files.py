"""Files that appear under their final names only when they are complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_CHUNK_BYTES = 4 << 20

_unfinished: set[Path] = set()
"""Files and folders that are being written, for a process that has to end at once."""


def discard_unfinished() -> None:
    """Remove everything that is being written; only for a process that ends now."""
    for path in list(_unfinished):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.unlink() if path.is_file() else path.parent.rmdir()


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its place when the block succeeds.

    Raises:
        OSError: nothing can be written there; it names `target`, not the temporary file.
    """
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    os.close(handle)
    temporary = Path(name)
    _unfinished.add(temporary)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_mask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A hidden folder inside `folder` for work in progress; nothing of it remains afterwards.

    `folder` is made when it is missing, and removed again when the block fails before anything
    was put into it.
    """
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    _unfinished.add(scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _unfinished.discard(scratch)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def commit(scratch: Path, folder: Path, names: Iterable[str]) -> None:
    """Move finished files from the staging folder to their final names."""
    for name in names:
        os.replace(scratch / name, folder / name)


def sha256_of(*paths: Path) -> str:
    """Hex digest of the files' bytes, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()
