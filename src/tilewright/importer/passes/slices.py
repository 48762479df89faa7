"""Slices of slices, and Gathers of neighbouring indices, become one Slice.

Slice(Slice(x, a), b) = Slice(x, a then b)              over different axes
Gather(x, i; a) = Reshape(Slice(x, i..i+1; a))          for a constant scalar i
Gather(x, [i, i + s, ..]; a) = Slice(x, i.., step s; a)  for constants with s > 0
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    int_attribute,
    is_constant,
    producer_of,
    static_shape,
)

NAME = "slices"

Part = tuple[int, int, int, int]
"""Axis, start, end and step."""


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "Slice":
            changes += _merge(editor, node)
        elif node.op_type == "Gather":
            changes += _from_gather(editor, node)
    return PassResult(NAME, changes)


def parts_of(node: ir.Node) -> list[Part] | None:
    """What a Slice with constant operands takes along each of its axes, in order of the axes."""
    starts, ends, axes, steps = (array_of(input_at(node, index)) for index in range(1, 5))
    if starts is None or ends is None or axes is None or steps is None:
        return None
    columns = (axes, starts, ends, steps)
    return sorted(zip(*([int(v) for v in column] for column in columns), strict=True))


def write_slice(
    editor: Editor, data: ir.Value, parts: list[Part], before: ir.Node, sources: tuple[ir.Node, ...]
) -> ir.Value:
    ordered = sorted(parts)
    operands = [
        editor.constant(np.asarray([part[column] for part in ordered], np.int64), name)
        for column, name in ((1, "starts"), (2, "ends"), (0, "axes"), (3, "steps"))
    ]
    return editor.emit("Slice", [data, *operands], before=before, sources=sources)[0]


def _merge(editor: Editor, node: ir.Node) -> bool:
    inner = producer_of(node.inputs[0], "Slice")
    first, second = parts_of(inner) if inner is not None else None, parts_of(node)
    if inner is None or first is None or second is None:
        return False
    if {part[0] for part in first} & {part[0] for part in second}:
        return False
    result = write_slice(editor, data_input(inner), [*first, *second], node, (inner, node))
    return editor.replace(node.outputs[0], result)


def _from_gather(editor: Editor, node: ir.Node) -> bool:
    data, indices = data_input(node), array_of(node.inputs[1])
    shape, made = static_shape(data), static_shape(node.outputs[0])
    if indices is None or shape is None or made is None or is_constant(data) or indices.ndim > 1:
        return False
    axis = int_attribute(node, "axis", 0)
    wanted = [int(index) % shape[axis] for index in indices.reshape(-1)]
    steps = [after - before for before, after in itertools.pairwise(wanted)] or [1]
    if not wanted or len(set(steps)) > 1 or steps[0] < 1:
        return False
    part = (axis, wanted[0], wanted[-1] + 1, steps[0])
    result = write_slice(editor, data, [part], node, (node,))
    if indices.ndim == 0:
        target = editor.constant(np.asarray(made, np.int64), f"{node.name}_shape")
        result = editor.emit("Reshape", [result, target], before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)
