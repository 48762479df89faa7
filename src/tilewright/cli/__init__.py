"""The command line: thin verbs that parse, call the API and print."""

from __future__ import annotations

from tilewright.cli.entry import main, run_command

__all__ = ["main", "run_command"]
