"""Checksums of files and of sets of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tilewright.assets.table import Derived, Entry

State = Literal["ok", "missing", "damaged"]


def file_digest(path: Path) -> str:
    """sha256 of one file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(digests: Mapping[str, str]) -> str:
    """sha256 over the lines `<sha256>  <file name>`, sorted by file name."""
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def state_of(entry: Entry, cache: Path) -> State:
    """Whether the entry's files are in the cache and intact.

    A derived file has no digest of its own: it is written atomically from a checked source, so that
    being there is enough.
    """
    target = cache / entry.target
    if isinstance(entry, Derived):
        return "ok" if target.is_file() else "missing"
    if not entry.is_set:
        if not target.is_file():
            return "missing"
        return "ok" if file_digest(target) == entry.sha256 else "damaged"
    if not target.is_dir():
        return "missing"
    files = [p for p in target.iterdir() if p.is_file() and not p.name.startswith(".")]
    found = tree_digest({p.name: file_digest(p) for p in files})
    return "ok" if found == entry.sha256 else "damaged"
