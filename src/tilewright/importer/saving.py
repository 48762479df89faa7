"""Writing a model: whole or not at all, the same bytes for the same model."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from tilewright.errors import EnvironmentFault

# Protobuf messages end at 2 GiB; the rest is room for the structure.
LARGEST_MESSAGE_BYTES = (2 << 30) - (64 << 20)

_ALIGNMENT_BYTES = 64
_SMALLEST_EXTERNAL_BYTES = 1024


def constant_bytes(model: ir.Model) -> int:
    """Bytes of all constants."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    largest_message_bytes: int = LARGEST_MESSAGE_BYTES,
) -> None:
    """Write the model under `path`, complete or not at all.

    Constants go into one file (`<name>.data`, tensors 64-byte aligned in order) when they exceed
    `largest_message_bytes`.

    Raises:
        EnvironmentFault: the disk is full or the folder cannot be written.
    """
    target = Path(path)
    external = constant_bytes(model) > largest_message_bytes
    data = target.with_name(target.name + ".data")
    try:
        with contextlib.ExitStack() as stack:
            if external:
                proto = without_large_constants(model)
                with stack.enter_context(_replacing(data)).open("wb") as stream:
                    _write_constants(model, proto, stream, data.name)
            else:
                proto = _with_constants(model)
            temporary = stack.enter_context(_replacing(target))
            temporary.write_bytes(proto.SerializeToString(deterministic=True))
    except OSError as error:
        raise EnvironmentFault(
            f"{target} cannot be written: {error.strerror or error}",
            fix="free disk space or choose another folder",
            code="TW-5001",
        ) from error


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its place when the block succeeds."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _with_constants(model: ir.Model) -> onnx.ModelProto:
    """The protobuf with every constant inside, also those that were mapped from a data file."""
    proto = ir.serde.serialize_model(model)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            value = model.graph.initializers[tensor.name].const_value
            assert value is not None
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = value.tobytes()
    return proto


def without_large_constants(model: ir.Model) -> onnx.ModelProto:
    """The protobuf of a model whose large constants are placeholders."""
    kept = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= _SMALLEST_EXTERNAL_BYTES:
            kept[name] = tensor
            value.const_value = ir.ExternalTensor(
                "", 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
    try:
        return ir.serde.serialize_model(model)
    finally:
        for name, tensor in kept.items():
            model.graph.initializers[name].const_value = tensor


def _write_constants(
    model: ir.Model, proto: onnx.ModelProto, stream: BinaryIO, location: str
) -> None:
    offset = 0
    for tensor in proto.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        content = model.graph.initializers[tensor.name].const_value
        assert content is not None
        padding = -offset % _ALIGNMENT_BYTES
        stream.write(bytes(padding))
        offset += padding
        stream.write(content.tobytes())
        tensor.ClearField("external_data")
        for key, text in (
            ("location", location),
            ("offset", str(offset)),
            ("length", str(content.nbytes)),
        ):
            tensor.external_data.add(key=key, value=text)
        offset += content.nbytes
