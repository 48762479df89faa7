"""An island: what one node of our domain stands for."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import graph as integer


@dataclass(frozen=True, eq=False)
class Island:
    """A part of the model that runs on the NPU; its borders carry float32 ONNX tensors."""

    name: str
    graph: integer.Graph
