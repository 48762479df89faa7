"""Downloading a pinned package with the registry's own client."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tilewright.assets.table import Package
from tilewright.errors import EnvironmentFault

Downloader = Callable[[Package, Path], Path]


def download(package: Package, folder: Path) -> Path:
    """Put the package's archive into an empty `folder`; pip and npm use the index they are set to.

    Raises:
        EnvironmentFault: the client is missing, or the download failed.
    """
    command = _pip(package, folder) if package.registry == "pypi" else _npm(package)
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EnvironmentFault(f"cannot run {command[0]!r}: {error.strerror}") from error
    if result.returncode:
        raise EnvironmentFault(
            f"{package} could not be downloaded: {_reason(result.stdout + result.stderr)}",
            fix="check the network and the package index, then run it again",
            code="TW-5010",
        )
    suffixes = (".whl", ".zip", ".tar.gz", ".tgz")
    archives = [p for p in sorted(folder.iterdir()) if p.name.endswith(suffixes)]
    if len(archives) != 1:
        raise EnvironmentFault(f"{package}: expected one archive, got {len(archives)}")
    return archives[0]


def _pip(package: Package, folder: Path) -> list[str]:
    kind = ["--no-binary", package.name] if package.source else []
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--disable-pip-version-check", *kind, "--dest", str(folder)),
        f"{package.name}=={package.version}",
    ]


def _npm(package: Package) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise EnvironmentFault(
            f"{package} is an npm package, and npm is not on the PATH",
            fix="install npm, or leave these assets out",
            code="TW-5011",
        )
    return [npm, "pack", "--silent", f"{package.name}@{package.version}"]


def _reason(output: str) -> str:
    """The line of a client's output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [s for s in lines if not s.upper().startswith(("WARNING", "[NOTICE]"))]
    errors = [s for s in telling if "ERROR" in s.upper() or "NO MODULE" in s.upper()]
    return (errors or telling or ["no output"])[-1]
