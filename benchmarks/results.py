"""Result files: what was measured, on what, by which command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("tilewright", "numpy", "onnx", "onnxruntime")


def host() -> dict[str, Any]:
    """The machine and the versions that figures depend on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """Model name; on machines that hide it, family and model number."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return named.get("model name") or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "source"


def write(
    name: str,
    rows: Iterable[Any],
    *,
    settings: Mapping[str, Any],
    provisional: bool = False,
) -> Path:
    """Write results/NAME.json.

    Args:
        rows: dataclasses or mappings, one for each line of the table.
        settings: what the command line chose, without local paths.
        provisional: timing taken on a machine with other work on it.
    """
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    content = {
        "benchmark": name,
        "settings": dict(settings),
        "provisional": provisional,
        "host": host(),
        "rows": [asdict(r) if is_dataclass(r) and not isinstance(r, type) else r for r in rows],
    }
    text = json.dumps(content, indent=1, default=_plain, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {os.path.relpath(path)}", file=sys.stderr)
    return path


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def read(name: str) -> dict[str, Any] | None:
    """The content of results/NAME.json, or None."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
