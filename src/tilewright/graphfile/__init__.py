"""The graph file `model.twg`: the integer graph in binary, what the C runtime loads.

`write` and `read` are inverse; the layout is declared once in `format` and explained in
`docs/graphfile.md`, which is generated, like the C header, from that declaration and from the
operators' own.
"""

from __future__ import annotations

from tilewright.graphfile.reader import read
from tilewright.graphfile.writer import write

__all__ = ["read", "write"]
