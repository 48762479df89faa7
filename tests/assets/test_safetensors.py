"""Reading .safetensors files written by hand, whole and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.assets.safetensors import read_safetensors
from tilewright.errors import DataError

ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1.5, -2.0], np.float16),
    "ids": np.array([[7, -8]], np.int64),
    "scalar": np.array(3.0, np.float64),
}
NAMES = {"float32": "F32", "float16": "F16", "int64": "I64", "float64": "F64"}


def pack(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def header_and_body() -> tuple[dict[str, Any], bytes]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in ARRAYS.items():
        raw = array.tobytes()
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    return header, body


def test_arrays_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(*header_and_body()))
    found = read_safetensors(path)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    header, body = header_and_body()
    whole = pack(header, body)
    wrong_type = pack({"w": header["weight"] | {"dtype": "BF16"}}, body)
    wrong_size = pack({"w": header["weight"] | {"shape": [9]}}, body)
    before = pack({"w": header["weight"] | {"data_offsets": [-24, 0]}}, body)
    no_offsets = pack({"w": {"dtype": "F32", "shape": [1]}}, body)
    for content in (
        *(b"", whole[:4], whole[:40], whole[:-1], b"\xff" * 64),
        *(wrong_type, wrong_size, before, no_offsets, pack({"w": 3}, body)),
    ):
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"model\.safetensors: not a \.safetensors file"):
            read_safetensors(path)
