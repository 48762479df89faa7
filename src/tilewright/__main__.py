"""The process: `tilewright` and `python -m tilewright`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; until it can answer ctrl-C itself, ctrl-C ends the process quietly."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
