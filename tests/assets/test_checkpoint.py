"""Reading state dicts: both formats, tensors only."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.assets.checkpoint import LEGACY_MAGIC, LEGACY_PROTOCOL, read_state_dict
from tilewright.errors import DataError

ARRAY = np.arange(12, dtype=np.float32)


@pytest.fixture
def torch_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Just enough of torch's names for pickle to write references to them."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    class FloatStorage:
        pass

    def _rebuild_tensor_v2() -> None:
        pass

    for module, thing in ((torch, FloatStorage), (utils, _rebuild_tensor_v2)):
        thing.__module__, thing.__qualname__ = module.__name__, thing.__name__
        setattr(module, thing.__name__, thing)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    yield torch


class Storage:
    """Stands for a storage; written as a persistent id."""


class Tensor:
    """Written as a call of torch's rebuild function."""

    def __init__(self, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> None:
        self.arguments = (Storage(), offset, shape, stride, False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


class Writer(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Storage):
            return ("storage", sys.modules["torch"].FloatStorage, "0", "cpu", ARRAY.size)
        return None


def pickled(obj: Any) -> bytes:
    stream = io.BytesIO()
    Writer(stream, 2).dump(obj)
    return stream.getvalue()


def write_zip(path: Path, state: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickled(state))
        archive.writestr("m/data/0", ARRAY.tobytes())
    return path


def write_stream(path: Path, state: Any) -> Path:
    head = [LEGACY_MAGIC, LEGACY_PROTOCOL, {"little_endian": True}, state, ["0"]]
    body = b"".join(pickled(part) for part in head)
    path.write_bytes(body + struct.pack("<q", ARRAY.size) + ARRAY.tobytes())
    return path


@pytest.mark.parametrize("write", [write_zip, write_stream])
def test_strided_tensors_of_one_storage(write: Any, torch_names: Any, tmp_path: Path) -> None:
    state = OrderedDict(a=Tensor((3, 4), (4, 1)), b=Tensor((4, 2), (1, 4), 1), n=3)
    read = read_state_dict(write(tmp_path / "w.pth", state))
    assert sorted(read) == ["a", "b"], "only tensors are taken"
    np.testing.assert_array_equal(read["a"], ARRAY.reshape(3, 4))
    np.testing.assert_array_equal(read["b"], [[1, 5], [2, 6], [3, 7], [4, 8]])


@pytest.mark.parametrize(
    "tensor", [Tensor((4, 4), (4, 1)), Tensor((2,), (-1,), 1), Tensor((2,), (1,), -1)]
)
def test_views_outside_the_storage_are_refused(
    tensor: Tensor, torch_names: Any, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"storage|negative"):
        read_state_dict(write_zip(tmp_path / "w.pth", {"a": tensor}))


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


@pytest.mark.parametrize("write", [write_zip, write_stream])
def test_other_classes_are_refused(
    write: Any, torch_names: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="print, which is not allowed"):
        read_state_dict(write(tmp_path / "w.pth", {"a": Hostile()}))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04 broken", b"\x80\x02."])
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(data)
    with pytest.raises(DataError, match=r"w\.pth: not a PyTorch checkpoint"):
        read_state_dict(tmp_path / "w.pth")


def test_truncated_stream(torch_names: Any, tmp_path: Path) -> None:
    path = write_stream(tmp_path / "w.pth", {"a": Tensor((3, 4), (4, 1))})
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="wrong length"):
        read_state_dict(path)
