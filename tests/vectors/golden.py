"""Reads the vector files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.graph import DType, TensorType

FOLDER = Path(__file__).parent


def cases(name: str) -> Iterator[dict[str, Any]]:
    """The cases of one file; scalars as Python values."""
    with np.load(FOLDER / f"{name}.npz") as data:
        arrays = {key: data[key] for key in data.files}
    for i in range(int(arrays.pop("cases"))):
        own = {k.split("/")[1]: v for k, v in arrays.items() if k.startswith(f"{i}/")}
        yield {k: v.item() if v.ndim == 0 else v for k, v in own.items()}


def dtype(case: dict[str, Any], tensor: str) -> DType:
    return DType[case[f"{tensor}_type"].upper()]


def tensor(case: dict[str, Any], name: str, shape: tuple[int, ...] | None = None) -> TensorType:
    """The type of one of the case's tensors."""
    return TensorType(
        dtype(case, name),
        case[name].shape if shape is None else shape,
        case[f"{name}_scale"],
        case.get(f"{name}_zero_point", 0),
    )
