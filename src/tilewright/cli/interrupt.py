"""Ctrl-C: leave at once, and leave nothing half-written.

The interrupt is an exception first, so that everything unwinds.  But Python drops exceptions that
arise inside weakref callbacks, and extension modules turn them into errors of their own; so an
alarm follows, which removes unfinished files and ends the process whatever it is doing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tilewright.files import discard_unfinished

CODE = 130
GRACE_SECONDS = 2.0


class Interrupts:
    """Handles SIGINT for the process.

    Args:
        report: prints the one line for the user.

    Attributes:
        seen: whether an interrupt has come.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        self.seen = False
        self._report = report

    def install(self) -> None:
        """Take over SIGINT; where signals cannot be handled, Python's own way remains."""
        signal.signal(signal.SIGINT, self._interrupt)

    def leave(self) -> None:
        """End the process.  Not by SystemExit: the interpreter would raise SIGINT once more."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(CODE)

    def _interrupt(self, _number: int, _frame: Any) -> None:
        if self.seen:
            self._abandon(0, None)
        self.seen = True
        signal.signal(signal.SIGALRM, self._abandon)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        raise KeyboardInterrupt

    def _abandon(self, _number: int, _frame: Any) -> None:
        discard_unfinished()
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h\n")  # a progress bar hides the cursor
        self._report()
        self.leave()
