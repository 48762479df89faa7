"""Published architectures without their weights, from a folder with `structures.py` and its files.

Each is refilled with seeded random weights, so that it can be built, executed and timed; what it
computes means nothing. Where the index says that a structure was exported from ultralytics, whose
licence (AGPL-3.0) may reach it, it is for measuring only and its files are never kept.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from models import Network, Shape, input_names

Array = npt.NDArray[Any]

SEED = 2024
MEASURED_ONLY = "ultralytics"


def measured_only(network: Network) -> bool:
    """Whether the network's licence keeps it out of what is stored."""
    return network.origin.startswith(MEASURED_ONLY)


@dataclass(frozen=True)
class Input:
    """An input of a structure.

    Args:
        values: how many values an integer may take; 0 for floats.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    values: int


def names(folder: Path) -> list[str]:
    """All structures of the folder."""
    found: list[str] = _module(folder).list_names()
    return found


def architecture(folder: Path, name: str) -> Network:
    """One structure with seeded noise for samples; shapes are those of its file."""
    inputs = inputs_of(_module(folder).load_structure(name))
    return Network(
        name,
        tuple(i.shape for i in inputs),
        partial(noise, inputs),
        partial(model, folder, name),
        trained=False,
        origin=_index(folder).get(name, {}).get("source", ""),
    )


def model(folder: Path, name: str) -> onnx.ModelProto:
    """One structure, weights drawn."""
    refilled: onnx.ModelProto = _module(folder).materialize(name)
    return refilled


def inputs_of(structure: onnx.ModelProto) -> tuple[Input, ...]:
    """The inputs of a model of static shape."""
    declared = {i.name: i.type.tensor_type for i in structure.graph.input}
    rows = {t.name: t.dims[0] for t in structure.graph.initializer if t.dims}
    found = []
    for name in input_names(structure):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared[name].elem_type)
        shape = tuple(d.dim_value for d in declared[name].shape.dim)
        values = 0 if dtype.kind == "f" else _values(structure.graph.node, name, rows)
        found.append(Input(name, shape, dtype, values))
    return tuple(found)


def _values(nodes: Sequence[onnx.NodeProto], name: str, rows: dict[str, int]) -> int:
    """Rows of the table that an input of indices reads; other integers are flags."""
    tables = (
        rows[n.input[0]]
        for n in nodes
        if n.op_type == "Gather" and n.input[1] == name and n.input[0] in rows
    )
    return next(tables, 2)


def noise(inputs: Sequence[Input], count: int) -> Iterator[tuple[Array, ...]]:
    """Seeded samples: normal values, or integers of the input's range."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        yield tuple(
            rng.integers(0, i.values, i.shape).astype(i.dtype)
            if i.values
            else rng.standard_normal(i.shape, dtype=np.float32)
            for i in inputs
        )


@cache
def _index(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "index.json"
    content: dict[str, dict[str, Any]] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    )
    return content


@cache
def _module(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("structures", folder / "structures.py")
    if spec is None or spec.loader is None or not (folder / "structures.py").exists():
        sys.exit(f"no structures.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
