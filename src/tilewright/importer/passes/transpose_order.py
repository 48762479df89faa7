"""Reshapes that cut axes stand before a Transpose, those that join axes behind it.

    Transpose(Reshape(x, axes joined), p) = Reshape(Transpose(x, p of the single axes), joined)
    Reshape(Transpose(x, p), axes cut) = Transpose(Reshape(x, axes cut), p of the parts)

so that transposes meet, and reshapes that undo each other.  Only when nothing else reads the value
between, and where the Transpose has at most four axes or meets another movement.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    data_input,
    ints_attribute,
    producer_of,
    sole_consumer,
    static_shape,
)

NAME = "transpose_order"

_FEW_AXES = 4

Groups = list[list[int]]


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "Transpose":
            changes += _join_late(editor, node)
        elif node.op_type == "Reshape":
            changes += _cut_early(editor, node)
    return PassResult(NAME, changes)


def joined_axes(single: tuple[int, ...], joined: tuple[int, ...]) -> Groups | None:
    """For each joined axis the neighbouring single axes that it holds, at least one; or None."""
    if not joined:
        return [] if not single else None
    held = 1
    for count, dim in enumerate(single, start=1):
        held *= dim
        if held > joined[0]:
            return None
        rest = joined_axes(single[count:], joined[1:]) if held == joined[0] else None
        if rest is not None:
            return [list(range(count)), *([axis + count for axis in group] for group in rest)]
    return None


def _join_late(editor: Editor, node: ir.Node) -> bool:
    reshape, perm = producer_of(node.inputs[0], "Reshape"), ints_attribute(node, "perm")
    if reshape is None or perm is None or sole_consumer(reshape.outputs[0]) is not node:
        return False
    data = data_input(reshape)
    single, joined = static_shape(data), static_shape(reshape.outputs[0])
    if single is None or joined is None or len(single) <= len(joined):
        return False
    groups = joined_axes(single, joined)
    if groups is None or not (len(single) <= _FEW_AXES or producer_of(data, "Transpose")):
        return False
    order = [axis for place in perm for axis in groups[place]]
    value = editor.emit("Transpose", [data], {"perm": order}, before=node, sources=(node,))[0]
    target = [joined[place] for place in perm]
    return editor.replace(node.outputs[0], _reshaped(editor, value, target, node, reshape))


def _cut_early(editor: Editor, node: ir.Node) -> bool:
    transpose = producer_of(node.inputs[0], "Transpose")
    perm = ints_attribute(transpose, "perm") if transpose is not None else None
    if transpose is None or perm is None or sole_consumer(transpose.outputs[0]) is not node:
        return False
    data = data_input(transpose)
    whole, cut = static_shape(transpose.outputs[0]), static_shape(node.outputs[0])
    if whole is None or cut is None or len(cut) <= len(whole):
        return False
    groups = joined_axes(cut, whole)
    if groups is None or not (len(cut) <= _FEW_AXES or producer_of(data, "Reshape")):
        return False
    placed = [axis for place in np.argsort(perm) for axis in groups[int(place)]]
    value = _reshaped(editor, data, [cut[axis] for axis in placed], node, node)
    order = [placed.index(axis) for axis in range(len(cut))]
    sources = (transpose,)
    value = editor.emit("Transpose", [value], {"perm": order}, before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], value)


def _reshaped(
    editor: Editor, value: ir.Value, shape: list[int], before: ir.Node, source: ir.Node
) -> ir.Value:
    operand = editor.constant(np.asarray(shape, np.int64), f"{before.name}_shape")
    return editor.emit("Reshape", [value, operand], before=before, sources=(source,))[0]
