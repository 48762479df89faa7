"""The C runtime from Python: `Runtime` runs an integer graph on this processor.

Nothing but ctypes and NumPy is needed to run a graph file.
"""

from __future__ import annotations

from tilewright.runtime.engine import Description, Runtime

__all__ = ["Description", "Runtime"]
