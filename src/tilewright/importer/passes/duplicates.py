"""Nodes that compute the same from the same inputs become one.

Inputs are the same when they are one value, or constants of at most 4 KiB with equal content.
"""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.evaluate import is_deterministic
from tilewright.importer.graphs import array_of, is_constant, size_in_bytes, subgraphs_of

NAME = "duplicates"

_LARGEST_CONSTANT_BYTES = 4096


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    first_of: dict[object, ir.Node] = {}
    changes = 0
    for node in list(model.graph):
        if next(subgraphs_of(node), None) is not None or not is_deterministic(node):
            continue
        first = first_of.setdefault(_key(node), node)
        if first is not node:
            changes += _replace(editor, node, first)
    return PassResult(NAME, changes)


def _replace(editor: Editor, node: ir.Node, first: ir.Node) -> bool:
    """Let the outputs of `first` stand for the node's; False when an output's name forbids it."""
    replaced = [editor.replace(a, b) for a, b in zip(node.outputs, first.outputs, strict=True)]
    return all(replaced)


def _key(node: ir.Node) -> object:
    attributes = tuple(
        sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())
    )
    inputs = tuple(_identity(value) for value in node.inputs)
    return node.domain, node.op_type, len(node.outputs), attributes, inputs


def _identity(value: ir.Value | None) -> object:
    if value is None or not is_constant(value):
        return value
    size = size_in_bytes(value)
    array = array_of(value) if size is not None and size <= _LARGEST_CONSTANT_BYTES else None
    if array is None:
        return value
    return str(array.dtype), array.shape, array.tobytes()
