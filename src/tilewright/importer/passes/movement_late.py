"""A Reshape or Transpose moves behind elementwise operators.

    f(move(x)) = move(f(x))                       also f(x, c) with a scalar c
    Reshape(x) * c = Reshape(x * c)               c along a last axis that stays; the same for +
    move(a) + move(b) = move(a + b)               a and b of one shape; the same for *, -, /
    r * Sigmoid(r) of r = move(x) = move(x * Sigmoid(x))

so that movements meet and vanish, and functions stand directly behind what they fuse with.  Only
when nothing else reads the moved values.
"""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    ints_attribute,
    is_constant,
    producer_of,
    sole_consumer,
    static_shape,
)
from tilewright.importer.pointwise import ELEMENTWISE

NAME = "movement_late"

_FUNCTIONS = ELEMENTWISE | {
    "Cast", "Celu", "Elu", "Gelu", "LeakyRelu", "Mish", "Selu", "Softsign", "ThresholdedRelu",
}  # fmt: skip


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type in _FUNCTIONS:
            changes += _sink(editor, node) or _sink_gated(editor, node)
    return PassResult(NAME, changes)


def _movement_of(value: ir.Value | None) -> ir.Node | None:
    node = producer_of(value, "Reshape") or producer_of(value, "Transpose")
    if node is None or static_shape(node.inputs[0]) is None:
        return None
    return node


def _sink(editor: Editor, node: ir.Node) -> bool:
    computed = [value for value in node.inputs if value is not None and not is_constant(value)]
    moves = [_movement_of(value) for value in computed]
    first = moves[0] if moves else None
    if first is None or not all(_is_ours(value, node) for value in computed):
        return False
    if any(move is None or not _alike(move, first) for move in moves):
        return False
    shape, moved = static_shape(first.inputs[0]), static_shape(first.outputs[0])
    if shape is None or moved is None or static_shape(node.outputs[0]) != moved:
        return False
    operands: list[ir.Value | None] = []
    for value in node.inputs:
        move = _movement_of(value)
        if move is not None:
            operands.append(move.inputs[0])
        elif value is None or _broadcasts_alike(value, shape, first):
            operands.append(value)
        else:
            return False
    attributes: dict[str, Attribute] = {
        name: attribute.value for name, attribute in node.attributes.items()
    }
    result = editor.emit(node.op_type, operands, attributes, before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], _move_alike(editor, first, result, node))


def _sink_gated(editor: Editor, node: ir.Node) -> bool:
    """SiLU: the sigmoid and the product both read the moved value."""
    value = node.inputs[0]
    move = _movement_of(value)
    product = sole_consumer(node.outputs[0]) if node.op_type == "Sigmoid" else None
    if value is None or move is None or product is None or product.op_type != "Mul":
        return False
    if value not in product.inputs or value.is_graph_output():
        return False
    if {use.node for use in value.uses()} != {node, product}:
        return False
    data, sources = data_input(move), (node, product)
    gate = editor.emit("Sigmoid", [data], before=product, sources=sources[:1])[0]
    result = editor.emit("Mul", [data, gate], before=product, sources=sources)[0]
    return editor.replace(product.outputs[0], _move_alike(editor, move, result, product))


def _move_alike(editor: Editor, move: ir.Node, value: ir.Value, before: ir.Node) -> ir.Value:
    attributes: dict[str, Attribute] = {
        name: attribute.value for name, attribute in move.attributes.items()
    }
    operands = [value, *move.inputs[1:]]
    return editor.emit(move.op_type, operands, attributes, before=before, sources=(move,))[0]


def _is_ours(value: ir.Value, node: ir.Node) -> bool:
    """Whether the node alone reads the value, be it twice."""
    return not value.is_graph_output() and all(use.node is node for use in value.uses())


def _alike(move: ir.Node, other: ir.Node) -> bool:
    """Whether both move equal shapes in the same way."""
    if move.op_type != other.op_type:
        return False
    if static_shape(move.inputs[0]) != static_shape(other.inputs[0]):
        return False
    if move.op_type == "Transpose":
        return ints_attribute(move, "perm") == ints_attribute(other, "perm")
    return static_shape(move.outputs[0]) == static_shape(other.outputs[0])


def _broadcasts_alike(value: ir.Value, before: tuple[int, ...], move: ir.Node) -> bool:
    """Whether a constant means the same on both sides: a scalar, or along an equal last axis."""
    array = array_of(value)
    if array is None:
        return False
    if array.size == 1:
        return array.ndim <= len(before)
    after = static_shape(move.outputs[0]) or ()
    same_last = move.op_type == "Reshape" and before[-1:] == after[-1:]
    return same_last and array.shape == before[-1:]
