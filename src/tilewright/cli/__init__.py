"""The command line: thin verbs that parse, call the API and print."""

from __future__ import annotations

from tilewright.cli.entry import main

__all__ = ["main"]
