"""An Expand before an operator that broadcasts anyway is removed.

    Add(x, Expand(y)) = Add(x, y)        also Sub, Mul, Div, Max, Min, Pow, Where and comparisons

where the result keeps its shape.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import PassResult
from tilewright.importer.graphs import producer_of, static_shape

NAME = "expand"

_BROADCASTING = frozenset(
    {
        "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
        "Min", "Mul", "Or", "Pow", "Sub", "Where", "Xor",
    }
)  # fmt: skip


def run(model: ir.Model) -> PassResult:
    changes = 0
    for node in model.graph:
        if node.domain == "" and node.op_type in _BROADCASTING:
            changes += sum(_remove(node, index) for index in range(len(node.inputs)))
    return PassResult(NAME, changes)


def _remove(node: ir.Node, index: int) -> bool:
    expand = producer_of(node.inputs[index], "Expand")
    if expand is None:
        return False
    values = [expand.inputs[0] if k == index else value for k, value in enumerate(node.inputs)]
    shapes = [static_shape(value) for value in values]
    if any(shape is None for shape in shapes):
        return False
    if np.broadcast_shapes(*(s for s in shapes if s is not None)) != static_shape(node.outputs[0]):
        return False
    node.replace_input_with(index, expand.inputs[0])
    return True
