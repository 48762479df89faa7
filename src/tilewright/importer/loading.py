"""Reading an ONNX file, with one clear sentence for each way in which it can be unusable."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from tilewright.errors import ModelError, nearest
from tilewright.importer.graphs import array_of, int_attribute
from tilewright.importer.infer import schema_of
from tilewright.importer.verify import check_constants

OLDEST_OPSET = 9
COMPILED_DOMAIN = "ai.tilewright"

_CHUNK_BYTES = 8 << 20


def load(path: str | os.PathLike[str]) -> ir.Model:
    """Read and check a model; external data is mapped, not copied.

    Raises: ModelError: missing, unreadable, truncated, no ONNX, external data missing, opset out of
        range, unknown domain or operator, NaN or infinity in a weight, a node in training mode.
    """
    return read(path)[0]


def read(path: str | os.PathLike[str]) -> tuple[ir.Model, str]:
    """The checked model and the SHA-256 of the file's bytes followed by its external data files."""
    file = Path(path)
    content = _content(file)
    model = _parse(file, content)
    digest = hashlib.sha256(content)
    for data in _external_files(file, model):
        with data.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    _check_opset(file, model)
    _check_nodes(file, model)
    try:
        check_constants(model)
    except (ValueError, OSError, TypeError) as error:
        raise ModelError(
            f"{file} has a tensor that cannot be read: {error}",
            fix="copy or export the file again",
            code="TW-1103",
        ) from error
    _map_external_data(model)
    return model, digest.hexdigest()


def _content(file: Path) -> bytes:
    if not file.exists():
        siblings = (
            [entry.name for entry in file.parent.glob("*.onnx")] if file.parent.is_dir() else []
        )
        fix = nearest(file.name, siblings) if siblings else "check the path"
        raise ModelError(f"there is no file {file}", fix=fix, code="TW-1101")
    if file.is_dir():
        raise ModelError(f"{file} is a directory", fix="name the .onnx file in it", code="TW-1102")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{file} cannot be read: {error.strerror}", fix="check its permissions", code="TW-1102"
        ) from error
    if not content:
        raise ModelError(f"{file} is empty", fix="copy or export the file again", code="TW-1103")
    return content


def _parse(file: Path, content: bytes) -> ir.Model:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(
            f"{file} is not an ONNX model, or is truncated ({len(content)} bytes do not parse)",
            fix="copy or export the file again",
            code="TW-1103",
        ) from error
    if not proto.HasField("graph") or not (proto.ir_version and proto.opset_import):
        raise ModelError(
            f"{file} is not a complete ONNX model: it has no graph, IR version or opset",
            fix="copy or export the file again",
            code="TW-1103",
        )
    if not proto.graph.output or not proto.graph.node:
        raise ModelError(
            f"{file} has no {'outputs' if not proto.graph.output else 'nodes'}",
            fix="copy or export the file again",
            code="TW-1103",
        )
    _check_external_data(file, proto)
    try:
        with _without_warnings():
            model = ir.serde.deserialize_model(proto)
    except Exception as error:  # the reader has no error class of its own
        raise ModelError(
            f"{file} holds an invalid graph: {_innermost(error)}",
            fix="check it with onnx.checker and export it again",
            code="TW-1103",
        ) from error
    ir.external_data.set_base_dir(model.graph, file.parent)
    return model


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the reader's remarks on broken graphs off stderr: they become errors of ours."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or type(error).__name__).splitlines()[0]


def _check_external_data(file: Path, proto: onnx.ModelProto) -> None:
    for tensor in proto.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        data = file.parent / entries.get("location", "")
        if not data.is_file():
            raise ModelError(
                f"{file} keeps weight {tensor.name!r} in {entries.get('location')!r}, which is not "
                "beside it",
                fix="copy that file into the same directory",
                code="TW-1108",
            )
        try:
            end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
        except ValueError as error:
            raise ModelError(
                f"{file} does not say in numbers where weight {tensor.name!r} lies in {data.name}",
                fix="export the model again",
                code="TW-1103",
            ) from error
        if data.stat().st_size < end:
            raise ModelError(
                f"{data} has {data.stat().st_size} bytes, but weight {tensor.name!r} ends at {end}",
                fix="copy that file again",
                code="TW-1108",
            )


def _external_files(file: Path, model: ir.Model) -> Iterator[Path]:
    """The data files of the model, each once, in order of their names."""
    locations = {
        os.fspath(value.const_value.location)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(value.const_value, ir.ExternalTensor)
    }
    yield from (file.parent / location for location in sorted(locations))


def _map_external_data(model: ir.Model) -> None:
    """Arrays over the mapped files in place of references, which hold only beside the file."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.Tensor(
                    tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name
                )


def _check_opset(file: Path, model: ir.Model) -> None:
    newest = onnx.defs.onnx_opset_version()
    opset = model.opset_imports.get("")
    if opset is None:
        if any(node.domain == "" for graph in model.graphs() for node in graph):
            raise ModelError(
                f"{file} uses operators of the default domain but does not state its opset",
                fix="export the model again",
                code="TW-1112",
            )
        return
    if not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{file} has opset {opset}; opsets {OLDEST_OPSET} to {newest} can be read",
            fix="export the model with an opset in that range"
            if opset < OLDEST_OPSET
            else "install a newer onnx or export the model with an older opset",
            code="TW-1104",
        )


def _check_nodes(file: Path, model: ir.Model) -> None:
    local = {(function.domain, function.name) for function in model.functions.values()}
    opset = model.opset_imports.get("", 0)
    for graph in model.graphs():
        for node in graph:
            if (node.domain, node.op_type) in local:
                continue
            if node.domain == COMPILED_DOMAIN:
                raise ModelError(
                    f"{file} is compiled already",
                    fix="give the model that it was compiled from",
                    code="TW-1123",
                )
            if node.domain not in model.opset_imports:
                raise ModelError(
                    f"{file}: node {node.name!r} ({node.op_type}) is of domain {node.domain!r}, "
                    "whose version the model does not state",
                    fix="export the model again",
                    code="TW-1112",
                )
            if node.domain == "":
                _check_operator(file, node, opset)


def _check_operator(file: Path, node: ir.Node, opset: int) -> None:
    if schema_of(node.op_type, opset) is None:
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        raise ModelError(
            f"{file}: node {node.name!r} is of type {node.op_type}, which opset {opset} does not "
            "have",
            fix="state the opset that the model was written for"
            if node.op_type in known
            else nearest(node.op_type, known),
            code="TW-1112",
        )
    if _in_training_mode(node, opset):
        raise ModelError(
            f"{file}: node {node.name!r} ({node.op_type}) is in training mode",
            fix="export the model in evaluation mode (model.eval() in PyTorch)",
            code="TW-1109",
        )


def _in_training_mode(node: ir.Node, opset: int) -> bool:
    if node.op_type == "BatchNormalization":
        if opset >= 14:
            return bool(int_attribute(node, "training_mode", 0))
        return any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
        flag = node.inputs[2]
        array = array_of(flag)
        producer = flag.producer()
        if producer is not None and producer.op_type == "Constant":
            array = producer.attributes["value"].as_tensor().numpy()
        return array is not None and bool(array.reshape(-1)[0])
    return False
