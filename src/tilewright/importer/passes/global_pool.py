"""Means over the whole picture become GlobalAveragePool (rank 4, axes 2 and 3).

ReduceMean(x, [2, 3]; keepdims) = GlobalAveragePool(x)      without keepdims: then Reshape
AveragePool(x; kernel = whole picture, no padding) = GlobalAveragePool(x)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    ints_attribute,
    static_shape,
)

NAME = "global_pool"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and _is_global(node):
            changes += _write(editor, node)
    return PassResult(NAME, changes)


def _is_global(node: ir.Node) -> bool:
    shape = static_shape(node.inputs[0]) if node.inputs else None
    if shape is None or len(shape) != 4:
        return False
    if node.op_type == "ReduceMean":
        axes = array_of(input_at(node, 1))
        return axes is not None and sorted(int(axis) for axis in axes.reshape(-1)) == [2, 3]
    if node.op_type == "AveragePool":
        whole = ints_attribute(node, "kernel_shape") == shape[2:]
        return whole and not any(ints_attribute(node, "pads") or ())
    return False


def _write(editor: Editor, node: ir.Node) -> bool:
    result = editor.emit("GlobalAveragePool", [data_input(node)], before=node, sources=(node,))[0]
    shape = static_shape(node.outputs[0])
    if shape is not None and len(shape) != 4:
        operand = editor.constant(np.asarray(shape, np.int64), f"{node.name}_shape")
        result = editor.emit("Reshape", [result, operand], before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)
