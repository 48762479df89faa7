"""Slices that divide a tensor become a Split; a rotation is two Slices and a Concat.

    Slice(x, 0..i; a), Slice(x, i..j; a), Slice(x, j..n; a) = Split(x, [i, j - i, n - j]; a)
    Concat(s, r; a) of r, s = Split(x; a) = Concat(Slice(x, i..n; a), Slice(x, 0..i; a); a)

The slices that a rotation is made of stay slices.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    int_attribute,
    sole_consumer,
    static_shape,
)
from tilewright.importer.passes.slices import parts_of, write_slice

NAME = "split"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    position = {node: index for index, node in enumerate(model.graph)}
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "Slice":
            changes += _join(editor, node, position)
        elif node.op_type == "Split":
            changes += _rotate(editor, node)
    return PassResult(NAME, changes)


def _join(editor: Editor, node: ir.Node, position: dict[ir.Node, int]) -> bool:
    """Replace the slice and its neighbours along one axis when together they are the tensor."""
    parts = parts_of(node)
    shape = static_shape(node.inputs[0])
    if parts is None or shape is None or len(parts) != 1 or parts[0][1] != 0:
        return False
    axis = parts[0][0]
    found: dict[int, tuple[int, ir.Node]] = {}
    for use in data_input(node).uses():
        other = parts_of(use.node) if use.node.op_type == "Slice" and use.idx == 0 else None
        if other is not None and len(other) == 1 and other[0][0] == axis and other[0][3] == 1:
            found.setdefault(other[0][1], (other[0][2], use.node))
    slices, start = [], 0
    while start < shape[axis]:
        end, part = found.get(start, (start, node))
        if end <= start:
            return False
        slices.append((end - start, part))
        start = end
    if len(slices) < 2 or _is_rotation([part.outputs[0] for _, part in slices], axis):
        return False
    first = min((part for _, part in slices), key=lambda part: position[part])
    lengths = np.asarray([length for length, _ in slices], np.int64)
    outputs = editor.emit(
        "Split",
        [data_input(node), editor.constant(lengths, f"{node.name}_split")],
        {"axis": axis},
        before=first,
        sources=[part for _, part in slices],
        outputs=len(slices),
    )
    for (_, part), output in zip(slices, outputs, strict=True):
        editor.replace(part.outputs[0], output)
    return True


def _is_rotation(parts: list[ir.Value], axis: int) -> bool:
    """Whether the two parts of a tensor go to one Concat, in the other order."""
    if len(parts) != 2:
        return False
    concat = sole_consumer(parts[0])
    if concat is None or concat.op_type != "Concat" or concat is not sole_consumer(parts[1]):
        return False
    return list(concat.inputs) == parts[::-1] and int_attribute(concat, "axis", 0) == axis


def _rotate(editor: Editor, node: ir.Node) -> bool:
    axis, lengths = int_attribute(node, "axis", 0), array_of(input_at(node, 1))
    if lengths is None or not _is_rotation(list(node.outputs), axis):
        return False
    cut, total = int(lengths[0]), int(lengths.sum())
    for output, start, end in zip(node.outputs, (0, cut), (cut, total), strict=True):
        part = write_slice(editor, data_input(node), [(axis, start, end, 1)], node, (node,))
        editor.replace(output, part)
    return True
