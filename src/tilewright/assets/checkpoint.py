"""Reading a PyTorch state dict without PyTorch.

Both formats of `torch.save` are read: the zip archive and the older stream of pickles.  The
unpickler builds dictionaries and tensors and refuses every other class, so that a hostile file
cannot run code.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import DataError

STORAGE_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001

Weights = Mapping[str, npt.NDArray[Any]]


def read_state_dict(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name, of a state dict saved by `torch.save`.

    Raises:
        DataError: not such a file, or one that holds more than tensors.
    """
    file = Path(path)
    data = file.read_bytes()
    try:
        state = _read_zip(data) if data[:4] == b"PK\x03\x04" else _read_stream(data)
        if not isinstance(state, dict):
            raise _Refused(f"expected a state dict, found {type(state).__name__}")
        return {k: v.array() for k, v in state.items() if isinstance(v, _Tensor)}
    except (
        *(pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, AttributeError),
        *(IndexError, TypeError, ValueError, struct.error, UnicodeDecodeError),
    ) as error:
        raise DataError(
            f"{file.name}: not a PyTorch checkpoint of plain tensors ({error})", code="TW-1223"
        ) from error


class _Refused(ValueError):
    """The checkpoint asks for something that this reader does not do."""


@dataclass
class _Storage:
    """A storage named in the pickle; its bytes follow later."""

    dtype: np.dtype[Any]
    count: int
    data: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class _Tensor:
    """A strided view on a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def array(self) -> npt.NDArray[Any]:
        flat = self.storage.data
        if flat is None:
            raise _Refused("a storage has no data")
        steps = zip(self.shape, self.stride, strict=True)
        last = self.offset + sum((n - 1) * s for n, s in steps)
        if self.offset < 0 or min(self.stride, default=0) < 0:
            raise _Refused("a tensor has a negative stride or offset")
        if 0 not in self.shape and last >= flat.size:
            raise _Refused("a tensor reaches past its storage")
        strides = tuple(s * flat.itemsize for s in self.stride)
        view = np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, strides)
        return np.array(view)


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: Any, stride: Any, *_ignored: object
) -> _Tensor:
    return _Tensor(storage, int(offset), tuple(shape), tuple(stride))


def _rebuild_parameter(data: object, *_ignored: object) -> object:
    return data


class _Unpickler(pickle.Unpickler):
    """Builds ordered dictionaries, tensors and parameters; nothing else."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        allowed: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        }
        if (module_name, global_name) in allowed:
            return allowed[module_name, global_name]
        if module_name in ("torch", "torch.storage") and global_name in STORAGE_DTYPES:
            return np.dtype(STORAGE_DTYPES[global_name])
        raise _Refused(f"it asks for {module_name}.{global_name}, which is not allowed")

    def persistent_load(self, pid: Any, /) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise _Refused("it names a storage in an unknown way")
        _, dtype, key, _device, count = pid[:5]
        if len(pid) > 5 and pid[5] is not None:
            raise _Refused("it has views on storages")
        return self.storages.setdefault(key, _Storage(dtype, int(count)))


def _read_zip(data: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pickles = [n for n in archive.namelist() if n.split("/")[-1] == "data.pkl"]
        if len(pickles) != 1:
            raise _Refused("no data.pkl in the archive")
        root = pickles[0].removesuffix("data.pkl")
        unpickler = _Unpickler(io.BytesIO(archive.read(pickles[0])))
        state = unpickler.load()
        for key, storage in unpickler.storages.items():
            raw = archive.read(f"{root}data/{key}")
            storage.data = np.frombuffer(raw, storage.dtype, storage.count)
    return state


def _read_stream(data: bytes) -> Any:
    stream = io.BytesIO(data)
    if _Unpickler(stream).load() != LEGACY_MAGIC:
        raise _Refused("wrong magic number")
    if _Unpickler(stream).load() != LEGACY_PROTOCOL:
        raise _Refused("unknown protocol version")
    if not _Unpickler(stream).load().get("little_endian", True):
        raise _Refused("it is big-endian")
    unpickler = _Unpickler(stream)
    state = unpickler.load()
    for key in _Unpickler(stream).load():
        storage = unpickler.storages[key]
        (count,) = struct.unpack("<q", stream.read(8))
        raw = stream.read(count * storage.dtype.itemsize)
        if count != storage.count or len(raw) != count * storage.dtype.itemsize:
            raise _Refused(f"storage {key!r} has the wrong length")
        storage.data = np.frombuffer(raw, storage.dtype)
    return state
