"""Whole processes, timed: wall time and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

KIB_PER_UNIT = 1 / 1024 if sys.platform == "darwin" else 1.0
"""`ru_maxrss` is in bytes on macOS and in KiB elsewhere."""


class Spent(NamedTuple):
    """What one process took; memory is its largest resident size."""

    seconds: float
    peak_mib: float
    output: str


def run(command: Sequence[str]) -> Spent:
    """Run a command to its end, with compiled Python modules as an installation has them.

    Raises:
        SystemExit: it failed; its output is shown.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{output}")
    return Spent(seconds, usage.ru_maxrss * KIB_PER_UNIT / 1024, output)


def _environment() -> dict[str, str]:
    """Ours, but that modules may be compiled once for all runs."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def tilewright(*arguments: str) -> list[str]:
    """The command line of this Python's Tilewright."""
    return [sys.executable, "-m", "tilewright", *arguments]
