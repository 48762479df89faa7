"""A number that stands for the operators' declarations.

Attributes and constants are stored by position.  A file whose writer declared them otherwise, or a
runtime library built from other declarations, is recognised by this number and refused.
"""

from __future__ import annotations

import functools
import zlib

from tilewright.ops.catalog import OPERATORS


@functools.cache
def schema() -> int:
    """CRC-32 of all names, counts and axes, in storage order."""
    lines = []
    for code, cls in sorted(OPERATORS.items()):
        attributes = [f"{name}:{a.count}" for name, a in cls.attributes().items()]
        constants = [f"{n}:{c.axes}:{c.optional}" for n, c in cls.constants().items()]
        lines.append(f"{code} {cls.__name__} {attributes} {constants}")
    return zlib.crc32("\n".join(lines).encode())
