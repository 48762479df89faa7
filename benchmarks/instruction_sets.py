"""Choosing the C runtime's kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.errors import TilewrightError
from tilewright.runtime import Runtime

INSTRUCTION_SETS = ("portable", "avx2", "avxvnni", "avx512vnni")
VARIABLE = "TILEWRIGHT_ISA"


@contextmanager
def instruction_set(isa: str) -> Iterator[None]:
    """Models that are loaded within it use these kernels."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = isa
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def usable_instruction_sets(graph_file: bytes) -> list[str]:
    """Those that this processor has, least first."""
    found = []
    for isa in INSTRUCTION_SETS:
        try:
            with instruction_set(isa):
                found.append(Runtime(graph_file).instruction_set)
        except TilewrightError:  # the runtime refuses what the processor lacks
            continue
    return found
