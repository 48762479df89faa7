"""Subtraction and division by constants, and the order of operands.

    x - c = x + (-c)        x / c = x * (1 / c)        c + x = x + c        c * x = x * c
    1 / x = Reciprocal(x)

1 / c is rounded to the tensor's type: exact for powers of two, else one rounding of relative size
2**-24 for float32. Kept as it is where 1 / c is not finite or c is not floating point.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    float_array,
    is_constant,
    scalar_of,
    static_shape,
)

NAME = "arithmetic"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type in ("Add", "Mul", "Max", "Min"):
            changes += _order(node)
        elif node.op_type in ("Sub", "Div"):
            changes += _invert(editor, node)
    return PassResult(NAME, changes)


def _order(node: ir.Node) -> bool:
    if len(node.inputs) != 2 or not is_constant(node.inputs[0]) or is_constant(node.inputs[1]):
        return False
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)
    return True


def _invert(editor: Editor, node: ir.Node) -> bool:
    if node.op_type == "Div" and scalar_of(node.inputs[0]) == 1.0:
        return _reciprocal(editor, node)
    operand, typed = float_array(node.inputs[1]), array_of(node.inputs[1])
    if operand is None or typed is None:
        return False
    with np.errstate(all="ignore"):
        inverse = (-operand if node.op_type == "Sub" else 1.0 / operand).astype(typed.dtype)
    if node.op_type == "Div" and not (np.isfinite(inverse).all() and inverse.all()):
        return False
    role = "negated" if node.op_type == "Sub" else "reciprocal"
    constant = editor.constant(inverse, f"{data_input(node, 1).name}_{role}")
    result = editor.emit(
        "Add" if node.op_type == "Sub" else "Mul",
        [node.inputs[0], constant],
        before=node,
        sources=(node,),
    )[0]
    return editor.replace(node.outputs[0], result)


def _reciprocal(editor: Editor, node: ir.Node) -> bool:
    data = data_input(node, 1)
    if static_shape(data) is None or static_shape(data) != static_shape(node.outputs[0]):
        return False
    result = editor.emit("Reciprocal", [data], before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)
