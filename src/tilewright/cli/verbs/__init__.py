"""One function per verb."""

from __future__ import annotations
