"""The value of one node whose inputs are all constant.

Data movement, integer arithmetic and elementary float arithmetic run in onnx's reference evaluator
(numpy, microseconds per node); every other operator runs in onnxruntime, so that a folded
interpolation or convolution has the bits that the original model would have computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tilewright.importer.graphs import (
    QUANTIZE_OPS,
    Array,
    array_of,
    size_in_bytes,
    static_shape,
    subgraphs_of,
)
from tilewright.importer.infer import OutputType, schema_of

LARGEST_FOLD_BYTES = 64 << 20
# A result of unknown size (NonZero, Unique) grows at most with its operands.
_LARGEST_UNSIZED_OPERAND_BYTES = 1 << 20

_NONDETERMINISTIC = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)

_ELEMENTARY = frozenset(
    {
        "Abs",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "CumSum",
        "Equal",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Relu",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
        "Xor",
    }
)


def evaluate(node: ir.Node, opset: int) -> list[Array] | None:
    """The outputs of the node as arrays, or None when it is not to be folded.

    A node is folded when it is deterministic, is no quantizer, all its inputs are constant, and its
    results take at most 64 MiB, or no more bytes than the constants that they replace.
    """
    if not _may_fold(node):
        return None
    inputs = [None if value is None else array_of(value) for value in node.inputs]
    try:
        if node.op_type == "Div" and node.domain == "":
            results = [_divide(inputs)]
        elif node.op_type in _ELEMENTARY and node.domain == "":
            results = _run_reference(node, inputs, opset)
        else:
            results = _run_onnxruntime(node, inputs, opset)
    except Exception:  # noqa: BLE001  a borrowed evaluator's failure only leaves the node as it is
        return None
    return results if _agree(node, results) else None


def is_deterministic(node: ir.Node) -> bool:
    """Whether equal inputs always give equal outputs."""
    return node.op_type not in _NONDETERMINISTIC


def _may_fold(node: ir.Node) -> bool:
    if node.op_type in QUANTIZE_OPS or not is_deterministic(node) or not node.inputs:
        return False
    if node.op_type == "Constant" or next(subgraphs_of(node), None) is not None:
        return False
    replaced = 0
    for value in node.inputs:
        if value is None:
            continue
        if array_of(value) is None or value.dtype == ir.DataType.STRING:
            return False
        replaced += size_in_bytes(value) or 0
    made = [size_in_bytes(value) for value in node.outputs if value.name]
    if None in made:
        return replaced <= _LARGEST_UNSIZED_OPERAND_BYTES and node.op_type != "Range"
    return sum(size or 0 for size in made) <= max(LARGEST_FOLD_BYTES, replaced)


def _agree(node: ir.Node, results: Sequence[Array]) -> bool:
    """Whether the evaluator's dtypes and shapes are the inferred ones."""
    if len(results) < sum(1 for value in node.outputs if value.name):
        return False
    for value, result in zip(node.outputs, results, strict=False):
        if value.dtype is not None and result.dtype != value.dtype.numpy():
            return False
        shape = static_shape(value)
        if shape is not None and shape != result.shape:
            return False
    return True


def _divide(inputs: Sequence[Array | None]) -> Array:
    """ONNX integer division truncates towards zero; numpy's floors."""
    numerator, denominator = inputs
    assert numerator is not None and denominator is not None
    with np.errstate(all="ignore"):
        if not np.issubdtype(numerator.dtype, np.integer):
            return np.asarray(np.divide(numerator, denominator), dtype=numerator.dtype)
        if not denominator.all():
            raise ZeroDivisionError
        quotient = np.floor_divide(numerator, denominator)
        inexact = np.remainder(numerator, denominator) != 0
        negative = np.signbit(numerator.astype(np.float64)) != np.signbit(
            denominator.astype(np.float64)
        )
        return np.asarray(quotient + (inexact & negative), dtype=numerator.dtype)


def _run_reference(node: ir.Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops import load_op

    schema = schema_of(node.op_type, opset)
    assert schema is not None
    context: dict[str, Any] = {
        "opsets": {"": opset},
        "log": lambda *_: None,
        "evaluator_cls": ReferenceEvaluator,
        "new_ops": None,
        "verbose": 0,
        "load_attr": None,
    }
    operator = load_op("", node.op_type, opset)(ir.serde.serialize_node(node), context)
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in operator.run(*inputs)]


def _run_onnxruntime(node: ir.Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    session = node_session(node, opset)
    feeds = {
        value.name: array
        for value, array in zip(node.inputs, inputs, strict=True)
        if value is not None
    }
    return [np.asarray(result) for result in session.run(None, feeds)]


def node_session(node: ir.Node, opset: int) -> Any:
    """An onnxruntime session of this node alone; constant inputs are inputs of the session too."""
    import onnxruntime

    graph_inputs = {
        value.name: ir.serde.serialize_value(value)
        for value in node.inputs
        if value is not None and value.name
    }
    graph = onnx.helper.make_graph(
        [ir.serde.serialize_node(node)],
        "node",
        list(graph_inputs.values()),
        [onnx.ValueInfoProto(name=value.name) for value in node.outputs if value.name],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(onnx.helper.make_opsetid(node.domain, node.version or 1))
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def foreign_output_types(node: ir.Node, opset: int) -> Sequence[OutputType] | None:
    """What onnxruntime infers for an operator of its own domains, or None where it cannot."""
    with contextlib.suppress(Exception):
        found = {output.name: output for output in node_session(node, opset).get_outputs()}
        return [_as_type(found[value.name]) for value in node.outputs if value.name]
    return None


def _as_type(output: Any) -> OutputType:
    """From onnxruntime's description: type "tensor(float)", dimensions numbers or symbols."""
    names = {"float": "FLOAT", "double": "DOUBLE"}
    element = output.type.removeprefix("tensor(").removesuffix(")")
    dtype = ir.DataType[names.get(element, element.upper())]
    return ir.TensorType(dtype), ir.Shape(output.shape)
