"""Neighbouring reshapes and transposes become one; a transpose that moves nothing is a reshape.

    Reshape(Reshape(x, a), b) = Reshape(x, b)
    Transpose(Transpose(x, p), q) = Transpose(x, p[q])
    Transpose(x, p) = Reshape(x)            where p moves axes of size 1 only

The inner node stays for its other readers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    ints_attribute,
    producer_of,
    static_shape,
)

NAME = "layout"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "Reshape":
            changes += _merge_reshapes(editor, node)
        elif node.op_type == "Transpose":
            changes += _merge_transposes(editor, node) or _moves_nothing(editor, node)
    return PassResult(NAME, changes)


def _merge_reshapes(editor: Editor, node: ir.Node) -> bool:
    inner = producer_of(node.inputs[0], "Reshape")
    shape = array_of(node.inputs[1])
    if inner is None or shape is None or (shape.astype(np.int64) <= 0).any():
        return False
    result = editor.emit(
        "Reshape", [inner.inputs[0], node.inputs[1]], before=node, sources=(inner, node)
    )[0]
    return editor.replace(node.outputs[0], result)


def _merge_transposes(editor: Editor, node: ir.Node) -> bool:
    inner = producer_of(node.inputs[0], "Transpose")
    if inner is None:
        return False
    first, second = ints_attribute(inner, "perm"), ints_attribute(node, "perm")
    if first is None or second is None:
        return False
    result = editor.emit(
        "Transpose",
        [inner.inputs[0]],
        {"perm": [first[axis] for axis in second]},
        before=node,
        sources=(inner, node),
    )[0]
    return editor.replace(node.outputs[0], result)


def _moves_nothing(editor: Editor, node: ir.Node) -> bool:
    data, perm = data_input(node), ints_attribute(node, "perm")
    shape = static_shape(data)
    if perm is None or shape is None:
        return False
    long = [axis for axis in perm if shape[axis] != 1]
    if long != sorted(long) or list(perm) == sorted(perm):
        return False
    target = editor.constant(
        np.asarray([shape[axis] for axis in perm], np.int64), f"{node.name}_shape"
    )
    result = editor.emit("Reshape", [data, target], before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)
