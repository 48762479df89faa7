"""Types and shapes of one node's outputs, from the types, shapes and constants of its inputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from tilewright.errors import ModelError
from tilewright.importer.graphs import array_of, static_shape

# Values of inputs matter to shape inference only for shape-like operands; larger ones are weights.
_LARGEST_OPERAND = 4096

_IR_VERSION = 10

# onnx has no inference function for these; their results are like their first input.
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization", "RMSNormalization"})

OutputType = tuple[ir.TypeProtocol | None, ir.Shape | None]


@functools.cache
def schema_of(op_type: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """The operator's schema in the given opset, or None when it is unknown."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@functools.lru_cache(maxsize=4096)
def _tensor_type(elem_type: int, dims: tuple[int | None, ...] | None) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(elem_type, dims)


def _type_of(value: ir.Value) -> onnx.TypeProto | None:
    if value.type is None:
        return None
    if isinstance(value.type, ir.TensorType):
        dims = None
        if value.shape is not None:
            dims = tuple(d if isinstance(d, int) and d >= 0 else None for d in value.shape.dims)
        return _tensor_type(int(value.type.dtype), dims)
    return ir.serde.serialize_type(value.type)


def _from_proto(proto: onnx.TypeProto) -> OutputType:
    if proto.HasField("tensor_type") and proto.tensor_type.elem_type:
        tensor = proto.tensor_type
        shape = None
        if tensor.HasField("shape"):
            shape = ir.Shape(
                [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
            )
        return ir.TensorType(ir.DataType(tensor.elem_type)), shape
    return ir.serde.deserialize_type_proto_for_type(proto), None


def output_types(node: ir.Node, opset: int) -> Sequence[OutputType] | None:
    """What onnx infers for each output, or None when nothing is known about the operator.

    Raises:
        ModelError: the operands' shapes or types contradict each other.
    """
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return None
    if node.op_type in _LIKE_INPUT and node.inputs[0] is not None:
        return [(node.inputs[0].type, node.inputs[0].shape)]
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None or not value.name:
            continue
        proto = _type_of(value)
        if proto is None:
            return None
        types[value.name] = proto
        array = array_of(value)
        if array is not None and array.ndim <= 1 and array.size <= _LARGEST_OPERAND:
            assert value.const_value is not None
            data[value.name] = ir.serde.serialize_tensor(value.const_value)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid(node.domain, opset)],
            ir_version=_IR_VERSION,
        )
    except onnx.shape_inference.InferenceError as error:
        raise _contradiction(node, str(error)) from error
    found = [
        _from_proto(inferred[out.name]) if out.name and out.name in inferred else (None, None)
        for out in node.outputs
    ]
    if any(isinstance(d, int) and d < 0 for _, shape in found for d in shape or ()):
        raise _contradiction(node, "its result would be smaller than nothing")
    return found


def _contradiction(node: ir.Node, reason: str) -> ModelError:
    shapes = ", ".join(
        f"{value.name} {list(static_shape(value) or ('?',))}"
        for value in node.inputs
        if value is not None
    )
    return ModelError(
        f"node {node.name!r} ({node.op_type}) cannot take its inputs ({shapes}): "
        f"{reason.rsplit('] ', 1)[-1].strip()}",
        fix="check the input shapes that you gave, or export the model again",
        code="TW-1110",
    )
