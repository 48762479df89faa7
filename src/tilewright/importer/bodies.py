"""Operators newer than the canonical opset that ONNX itself defines by others (Attention, ...)."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx.inliner import inline_selected_functions

from tilewright.importer.infer import schema_of

# Recovery has a use for these as they are.
_KEPT = frozenset({"RMSNormalization"})


def has_body(node: ir.Node, opset: int, canonical: int) -> bool:
    """Whether the operator, unknown to opset `canonical`, is defined by a function body."""
    if node.domain != "" or node.op_type in _KEPT:
        return False
    schema = schema_of(node.op_type, opset)
    if schema is None or schema_of(node.op_type, canonical) is not None:
        return False
    kinds = ("has_function", "has_context_dependent_function")  # not in onnx's stubs
    return any(getattr(schema, kind, False) for kind in kinds)


def body_of(node: ir.Node, opset: int) -> ir.Graph | None:
    """The operator's definition as a graph over the values named as the node's inputs.

    Its outputs are named as the node's.  None when ONNX has no definition for these operands.
    """
    inputs = {value.name: ir.serde.serialize_value(value) for value in node.inputs if value}
    graph = onnx.helper.make_graph(
        [ir.serde.serialize_node(node)],
        "body",
        list(inputs.values()),
        [onnx.ValueInfoProto(name=value.name) for value in node.outputs if value.name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        inlined = inline_selected_functions(
            model, [("", node.op_type)], inline_schema_functions=True
        )
    except RuntimeError:  # onnx's builders of bodies assert what they expect of the operands
        return None
    if any(inner.op_type == node.op_type for inner in inlined.graph.node):
        return None
    return ir.serde.deserialize_model(inlined).graph
