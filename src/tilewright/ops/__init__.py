"""One operator per file: what it means, how it is lowered, tiled, emitted and costed."""

from __future__ import annotations
