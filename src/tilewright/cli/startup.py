"""What a command sets up before anything heavy is loaded; a library would leave it to its user."""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

LOADED_ON_USE = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
"""onnx_ir loads sympy for arithmetic on free dimensions, which hardly any command meets; it takes
longer to load than onnx_ir and onnxruntime together."""


def prepare() -> None:
    """Once for the process, before NumPy and onnx_ir are imported."""
    # The machine's products are small: OpenBLAS's threads wait for each other, and burn a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports and graphs only add objects: looking for garbage every 700 of them finds none.
    gc.set_threshold(20_000)
    sys.meta_path.insert(0, _LoadedOnUse())


class _LoadedOnUse(importlib.abc.MetaPathFinder):
    """Makes LOADED_ON_USE run when an attribute of theirs is first asked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in LOADED_ON_USE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec
