"""Tilewright: an open compiler for neural processing units.

    import tilewright

    build = tilewright.build("model.onnx", target="ax650n", calibration="pictures/")
    outputs = build.run({"image": x})
    session = tilewright.InferenceSession(build.compiled)

Names are loaded when they are first used, so that `import tilewright` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.api import Build, build
    from tilewright.errors import TilewrightError
    from tilewright.session import InferenceSession

__version__ = "0.1.0"
__all__ = ["Build", "InferenceSession", "TilewrightError", "__version__", "build"]

_HOMES = {
    "Build": "tilewright.api",
    "build": "tilewright.api",
    "InferenceSession": "tilewright.session",
    "TilewrightError": "tilewright.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
