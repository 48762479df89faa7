"""Reading a .safetensors file: u64 length of the header, header in JSON, raw little-endian data."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import DataError

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
LENGTH = struct.Struct("<Q")


def read_safetensors(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name.

    Raises:
        DataError: not such a file, or one of a type that is not read.
    """
    file = Path(path)
    data = file.read_bytes()
    try:
        (length,) = LENGTH.unpack_from(data)
        start = LENGTH.size + length
        header = json.loads(data[LENGTH.size : start])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _array(data, start, entry) for name, entry in entries.items()}
    except (struct.error, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file.name}: not a .safetensors file ({error})", code="TW-1223"
        ) from error


def _array(data: bytes, start: int, entry: dict[str, Any]) -> npt.NDArray[Any]:
    dtype = np.dtype(DTYPES[entry["dtype"]])
    first, last = entry["data_offsets"]
    if first < 0 or last - first != math.prod(entry["shape"]) * dtype.itemsize:
        raise ValueError(f"{entry['shape']} of {entry['dtype']} in {last - first} bytes")
    count = math.prod(entry["shape"])
    return np.frombuffer(data, dtype, count, start + first).reshape(entry["shape"])
