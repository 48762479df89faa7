"""Constant nodes become initializers.

Constant(value | value_float(s) | value_int(s) | value_string(s)) = initializer
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.errors import UnsupportedError
from tilewright.importer.edit import PassResult
from tilewright.importer.graphs import subgraphs_of

NAME = "constants"


def run(model: ir.Model) -> PassResult:
    for value in model.graph.initializers.values():
        _state_type(value)
    return PassResult(NAME, convert(model.graph))


def drop_initialized_inputs(model: ir.Model) -> None:
    """Before IR version 4 every initializer had to be an input too; here it is a constant only."""
    for value in list(model.graph.inputs):
        if value.is_initializer():
            model.graph.inputs.remove(value)


def convert(graph: ir.Graph) -> int:
    """Turn the Constant nodes of the graph and of those below it into initializers; how many."""
    changes = 0
    for node in list(graph):
        for subgraph in subgraphs_of(node):
            changes += convert(subgraph)
        if node.domain != "" or node.op_type != "Constant":
            continue
        output = node.outputs[0]
        name = output.name or ""
        value = ir.Value(name=name, const_value=_tensor(node, name))
        _state_type(value)
        if output.is_graph_output():
            output.name = f"{name}_constant"
            value.name = f"{name}_value"
            graph.register_initializer(value)
            alias = ir.node("Identity", [value], name=node.name)
            graph.insert_before(node, alias)
            alias.outputs[0].name = name
            output.replace_all_uses_with(alias.outputs[0], replace_graph_outputs=True)
        else:
            graph.register_initializer(value)
            output.replace_all_uses_with(value)
        graph.remove(node, safe=True)
        changes += 1
    return changes


def _tensor(node: ir.Node, name: str) -> ir.TensorProtocol:
    attributes = node.attributes
    if "value" in attributes:
        tensor = attributes["value"].as_tensor()
        tensor.name = name
        return tensor
    if "value_float" in attributes:
        return ir.Tensor(np.asarray(attributes["value_float"].as_float(), np.float32), name=name)
    if "value_floats" in attributes:
        return ir.Tensor(np.asarray(attributes["value_floats"].as_floats(), np.float32), name=name)
    if "value_int" in attributes:
        return ir.Tensor(np.asarray(attributes["value_int"].as_int(), np.int64), name=name)
    if "value_ints" in attributes:
        return ir.Tensor(np.asarray(attributes["value_ints"].as_ints(), np.int64), name=name)
    if "value_string" in attributes:
        text = attributes["value_string"].as_string()
        return ir.StringTensor([text.encode()], shape=ir.Shape([]), name=name)
    if "value_strings" in attributes:
        texts = [text.encode() for text in attributes["value_strings"].as_strings()]
        return ir.StringTensor(texts, shape=ir.Shape([len(texts)]), name=name)
    raise UnsupportedError(
        f"Constant node {node.name!r} holds a sparse tensor",
        fix="export the model with dense constants",
        code="TW-3001",
    )


def _state_type(value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None:
        value.type = ir.TensorType(tensor.dtype)
        value.shape = ir.Shape(tensor.shape.numpy())
