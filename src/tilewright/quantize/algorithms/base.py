"""The interface of algorithms that change the float model before it is calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import onnx_ir as ir


@dataclass(frozen=True)
class Changed:
    """A float model that computes the same function, and sentences on what was changed."""

    model: ir.Model
    notes: tuple[str, ...]


class Algorithm(Protocol):
    NAME: ClassVar[str]

    def apply(self, model: ir.Model) -> Changed:
        """A changed copy of a canonical float model."""
