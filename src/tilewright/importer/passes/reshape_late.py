"""A Reshape moves behind elementwise operators.

    f(Reshape(x)) = Reshape(f(x))                 also f(x, c) with a scalar c
    Reshape(x) * c = Reshape(x * c)               c along a last axis that stays; the same for +
    Reshape(a) + Reshape(b) = Reshape(a + b)      a and b of one shape; the same for *, -, /
    r * Sigmoid(r) of r = Reshape(x) = Reshape(x * Sigmoid(x))

so that reshapes meet and vanish, and functions stand directly behind what they fuse with.  Only
when nothing else reads the reshaped values.
"""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor, PassResult
from tilewright.importer.graphs import (
    data_input,
    is_constant,
    producer_of,
    sole_consumer,
    static_shape,
)
from tilewright.importer.pointwise import ELEMENTWISE

NAME = "reshape_late"

_FUNCTIONS = ELEMENTWISE | {
    "Celu", "Elu", "Gelu", "LeakyRelu", "Mish", "Selu", "Softsign", "ThresholdedRelu",
}  # fmt: skip


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type in _FUNCTIONS:
            changes += _sink(editor, node) or _sink_gated(editor, node)
    return PassResult(NAME, changes)


def _sink(editor: Editor, node: ir.Node) -> bool:
    computed = [value for value in node.inputs if value is not None and not is_constant(value)]
    reshapes = [producer_of(value, "Reshape") for value in computed]
    if not computed or not all(
        _is_ours(v, r, node) for v, r in zip(computed, reshapes, strict=True)
    ):
        return False
    first = reshapes[0]
    assert first is not None
    shape = static_shape(first.inputs[0])
    if shape is None or static_shape(node.outputs[0]) != static_shape(computed[0]):
        return False
    operands: list[ir.Value | None] = []
    for value in node.inputs:
        reshape = producer_of(value, "Reshape")
        if reshape is not None:
            if static_shape(reshape.inputs[0]) != shape:
                return False
            operands.append(reshape.inputs[0])
        elif value is None or _broadcasts_alike(value, shape, static_shape(computed[0])):
            operands.append(value)
        else:
            return False
    attributes: dict[str, Attribute] = {
        name: attribute.value for name, attribute in node.attributes.items()
    }
    result = editor.emit(node.op_type, operands, attributes, before=node, sources=(node,))[0]
    result = editor.emit("Reshape", [result, data_input(first, 1)], before=node, sources=(first,))[
        0
    ]
    return editor.replace(node.outputs[0], result)


def _sink_gated(editor: Editor, node: ir.Node) -> bool:
    """SiLU: the sigmoid and the product both read the reshaped value."""
    value = node.inputs[0]
    reshape = producer_of(value, "Reshape")
    product = sole_consumer(node.outputs[0]) if node.op_type == "Sigmoid" else None
    if value is None or reshape is None or product is None or product.op_type != "Mul":
        return False
    if value not in product.inputs or value.is_graph_output():
        return False
    if {use.node for use in value.uses()} != {node, product}:
        return False
    data, sources = data_input(reshape), (node, product)
    gate = editor.emit("Sigmoid", [data], before=product, sources=sources[:1])[0]
    result = editor.emit("Mul", [data, gate], before=product, sources=sources)[0]
    operands = [result, data_input(reshape, 1)]
    result = editor.emit("Reshape", operands, before=product, sources=(reshape,))[0]
    return editor.replace(product.outputs[0], result)


def _is_ours(value: ir.Value, reshape: ir.Node | None, node: ir.Node) -> bool:
    """Whether the value is a Reshape that the node alone reads (it may read it twice)."""
    if reshape is None or value.is_graph_output():
        return False
    return sole_consumer(value) is node or all(use.node is node for use in value.uses())


def _broadcasts_alike(
    value: ir.Value, before: tuple[int, ...], after: tuple[int, ...] | None
) -> bool:
    """Whether a constant means the same for both shapes: a scalar, or along an equal last axis."""
    dims = static_shape(value)
    if dims is None or not after:
        return False
    if all(dim == 1 for dim in dims):
        return len(dims) <= len(before)
    return len(dims) == 1 and before[-1:] == after[-1:] == dims
