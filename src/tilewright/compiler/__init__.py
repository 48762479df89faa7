"""The compiler: from an integer graph to a program, generic over `tilewright.ops`."""

from __future__ import annotations

from tilewright.compiler.pipeline import compile_graph

__all__ = ["compile_graph"]
