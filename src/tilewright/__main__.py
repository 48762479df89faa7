"""`python -m tilewright`."""

from __future__ import annotations

import sys

from tilewright.cli import main

sys.exit(main())
