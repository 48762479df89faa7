"""Runs the command line inside the test's process, or as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tilewright.cli import run_command


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object of stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    capsys.readouterr()
    code = run_command([str(a) for a in arguments])
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)


def process(*arguments: object, **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tilewright", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )
