"""A Gather whose constant indices lay an axis out as a matrix is a Reshape, or one and a Transpose.

    Gather(x, [[0, 1], [2, 3], ..]; a) = Reshape(x, [.., m, 2, ..])         also of more axes
    Gather(x, [[0, 2, ..], [1, 3, ..]]; a) = Transpose(Reshape(x, [.., m, 2, ..]))

as torch.nn.Unfold is exported for patches that do not overlap.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    int_attribute,
    is_constant,
    static_shape,
)

NAME = "unfold"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type == "Gather":
            changes += _lay_out(editor, node)
    return PassResult(NAME, changes)


def _lay_out(editor: Editor, node: ir.Node) -> bool:
    data, indices, axis = data_input(node), array_of(node.inputs[1]), int_attribute(node, "axis", 0)
    shape = static_shape(data)
    if indices is None or shape is None or is_constant(data) or indices.ndim < 2:
        return False
    if not indices.size or indices.size != shape[axis]:
        return False
    grid, order = indices.astype(np.int64), np.arange(indices.size)
    straight = bool((grid.reshape(-1) == order).all())
    if not straight and not (grid.ndim == 2 and bool((grid.T.reshape(-1) == order).all())):
        return False
    target = [*shape[:axis], *(grid.shape if straight else grid.T.shape), *shape[axis + 1 :]]
    operand = editor.constant(np.asarray(target, np.int64), f"{node.name}_shape")
    result = editor.emit("Reshape", [data, operand], before=node, sources=(node,))[0]
    if not straight:
        perm = [*range(axis), axis + 1, axis, *range(axis + 2, len(target))]
        attributes = {"perm": perm}
        result = editor.emit("Transpose", [result], attributes, before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)
