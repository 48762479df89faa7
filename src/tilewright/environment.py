"""Whether this machine has what a build needs: what `doctor` looks at."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from tilewright.errors import TilewrightError


class Check(NamedTuple):
    """One line of `doctor`: ok, note (optional and missing) or fail."""

    state: Literal["ok", "note", "fail"]
    name: str
    detail: str


SMALLEST_DISK_BYTES = 1 << 30


def examine() -> list[Check]:
    """Check everything that a build needs, in about two seconds."""
    checks = [_python(), *(_package(name) for name in _requirements())]
    checks += [_runtime(), _disk(Path.cwd(), "working folder")]
    checks += [_disk(Path(tempfile.gettempdir()), "temporary folder"), _assets()]
    checks.append(_optional("netron", "tilewright view"))
    return checks


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("ok" if sys.version_info >= (3, 11) else "fail", "Python", version)


def _requirements() -> list[str]:
    """Names of the required packages, from our own metadata; the known ones without it."""
    try:
        lines = metadata.requires("tilewright") or []
    except metadata.PackageNotFoundError:
        return ["numpy", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "pydantic", "pillow"]
    return [_leading_name(line) for line in lines if "extra ==" not in line]


def _leading_name(requirement: str) -> str:
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end]


def _package(name: str) -> Check:
    try:
        return Check("ok", name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check("fail", name, f"not installed; pip install {name}")


def _optional(name: str, purpose: str) -> Check:
    try:
        return Check("ok", name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check("note", name, f"not installed; only `{purpose}` needs it")


def _runtime() -> Check:
    try:
        from tilewright.runtime import library

        return Check("ok", "C runtime", library.load().tw_version().decode())
    except TilewrightError as error:
        return Check("fail", "C runtime", f"{error}")


def _disk(folder: Path, name: str) -> Check:
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    text = f"{folder}: {free / 2**30:.1f} GiB free{'' if writable else ', not writable'}"
    return Check("ok" if writable and free >= SMALLEST_DISK_BYTES else "fail", name, text)


def _assets() -> Check:
    from tilewright.assets import cache_directory

    folder = cache_directory()
    files = sum(1 for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else 0
    if not files:
        return Check("note", "assets", f"none in {folder}; `tilewright fetch demo` gets some")
    return Check("ok", "assets", f"{files} files in {folder}")
