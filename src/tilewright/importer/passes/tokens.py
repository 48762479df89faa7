"""A Gemm of flattened tokens becomes MatMul and Add on the tokens as they are.

    Gemm(Reshape(x, [M, K]), W, b) = Reshape(MatMul(x, W) + b, [M, N])

for x of shape [.., K], or of a shape whose last axes hold K elements (heads side by side), which is
then reshaped.  Where a Reshape behind shows the tokens in fewer axes (windows), these are taken.
Simplifiers write the left side, exporters the right; one row (M = 1) stays a Gemm.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    float_attribute,
    input_at,
    int_attribute,
    is_float_constant,
    producer_of,
    static_shape,
)

NAME = "tokens"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type == "Gemm":
            changes += _unflatten(editor, node)
    return PassResult(NAME, changes)


def _unflatten(editor: Editor, node: ir.Node) -> bool:
    flattening = producer_of(node.inputs[0], "Reshape")
    if flattening is None or not _is_plain(node):
        return False
    data = data_input(flattening)
    shape, rows = static_shape(data), static_shape(node.inputs[0])
    made = static_shape(node.outputs[0])
    if shape is None or rows is None or made is None or rows[0] == 1:
        return False
    leading = _leading(shape, rows[1])
    if leading is None or len(leading) < 2:
        return False
    leading = min([leading, *_leading_behind(node, made)], key=len)
    if (*leading, rows[1]) != shape:
        target = editor.constant(np.asarray([*leading, rows[1]], np.int64), f"{node.name}_tokens")
        data = editor.emit("Reshape", [data, target], before=node, sources=(flattening,))[0]
    operands = [data, _matrix(editor, node)]
    result = editor.emit("MatMul", operands, before=node, sources=(node,))[0]
    bias = input_at(node, 2)
    if bias is not None:
        result = editor.emit("Add", [result, bias], before=node, sources=(node,))[0]
    target = editor.constant(np.asarray(made, np.int64), f"{node.name}_flat")
    result = editor.emit("Reshape", [result, target], before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)


def _is_plain(node: ir.Node) -> bool:
    """x W + b with constants, whichever way W is stored."""
    if float_attribute(node, "alpha", 1.0) != 1.0 or float_attribute(node, "beta", 1.0) != 1.0:
        return False
    if int_attribute(node, "transA", 0) or not is_float_constant(node.inputs[1]):
        return False
    bias, made = input_at(node, 2), static_shape(node.outputs[0])
    if bias is None or made is None:
        return True
    return is_float_constant(bias) and static_shape(bias) in ((made[1],), (1,), ())


def _matrix(editor: Editor, node: ir.Node) -> ir.Value:
    """The weights as [K, N]."""
    weight = data_input(node, 1)
    if not int_attribute(node, "transB", 0):
        return weight
    array = array_of(weight)
    assert array is not None
    return editor.constant(array.T, weight.name or "weight")


def _leading_behind(node: ir.Node, made: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The axes of tokens, at least two, that Reshapes of the product show."""
    shapes = [
        static_shape(use.node.outputs[0])
        for use in node.outputs[0].uses()
        if use.node.op_type == "Reshape"
    ]
    found = [_leading(shape, made[1]) for shape in shapes if shape is not None]
    return [leading for leading in found if leading is not None and len(leading) >= 2]


def _leading(shape: tuple[int, ...], columns: int) -> tuple[int, ...] | None:
    """The axes before those that together hold `columns` elements, as few as can be."""
    for axis in range(len(shape) - 1, -1, -1):
        held = math.prod(shape[axis:])
        if held == columns:
            return shape[:axis]
        if held > columns:
            return None
    return None
