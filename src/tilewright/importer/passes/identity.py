"""Nodes that return their input are removed.

    Identity(x) = x             Transpose(x, 0 1 2 ..) = x       Reshape(x, shape of x) = x
    Slice(x, all of it) = x     Pad(x, 0) = x                    Concat(x) = x
    Cast(x, type of x) = x      Expand(x, shape of x) = x        Resize(x, all scales 1) = x
    Tile(x, 1) = x              x + 0 = x - 0 = x                Clip(x, lowest, largest) = x
    Split(x, one part) = x      x * 1 = x / 1 = x                Where(all true, x, y) = x

An Identity stays only where a graph output would otherwise be a graph input, a constant or another
output.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    ints_attribute,
    scalar_of,
    static_shape,
)

NAME = "identity"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "" or len(node.outputs) != 1:
            continue
        same = unchanged_input(node)
        if same is not None:
            changes += _remove(editor, node, same)
    return PassResult(NAME, changes)


def _remove(editor: Editor, node: ir.Node, same: ir.Value) -> bool:
    output = node.outputs[0]
    if editor.replace(output, same):
        return True
    if node.op_type == "Identity":
        return False
    alias = editor.emit("Identity", [same], before=node, sources=(node,))[0]
    return editor.replace(output, alias)


def unchanged_input(node: ir.Node) -> ir.Value | None:
    """The input that the node's single output always equals, or None."""
    test = _TESTS.get(node.op_type)
    return None if test is None else test(node)


def _identity(node: ir.Node) -> ir.Value | None:
    return data_input(node)


def _transpose(node: ir.Node) -> ir.Value | None:
    perm = ints_attribute(node, "perm")
    return data_input(node) if perm is not None and list(perm) == sorted(perm) else None


def _same_shape(node: ir.Node) -> ir.Value | None:
    shape = static_shape(data_input(node))
    return (
        data_input(node) if shape is not None and shape == static_shape(node.outputs[0]) else None
    )


def _slice(node: ir.Node) -> ir.Value | None:
    steps = array_of(input_at(node, 4))
    forward = steps is not None and bool((steps == 1).all())
    return _same_shape(node) if forward else None


def _pad(node: ir.Node) -> ir.Value | None:
    pads = array_of(input_at(node, 1))
    return data_input(node) if pads is not None and not pads.any() else None


def _concat(node: ir.Node) -> ir.Value | None:
    return data_input(node) if len(node.inputs) == 1 else None


def _cast(node: ir.Node) -> ir.Value | None:
    value = data_input(node)
    return value if value.dtype is not None and value.dtype == node.outputs[0].dtype else None


def _resize(node: ir.Node) -> ir.Value | None:
    scales = array_of(input_at(node, 2))
    return data_input(node) if scales is not None and bool((scales == 1).all()) else None


def _clip(node: ir.Node) -> ir.Value | None:
    data = data_input(node)
    low, high = scalar_of(input_at(node, 1)), scalar_of(input_at(node, 2))
    if low is None or high is None or data.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return None
    info = np.finfo(data.dtype.numpy())
    return data if low <= float(info.min) and high >= float(info.max) else None


def _neutral(neutral: float, *, either_side: bool) -> Callable[[ir.Node], ir.Value | None]:
    def test(node: ir.Node) -> ir.Value | None:
        for position in (1, 0) if either_side else (1,):
            constant = array_of(node.inputs[position])
            other = data_input(node, 1 - position)
            if constant is None or other.dtype is None or not other.dtype.is_floating_point():
                continue
            if bool((constant == neutral).all()) and static_shape(other) == static_shape(
                node.outputs[0]
            ):
                return other
        return None

    return test


def _where(node: ir.Node) -> ir.Value | None:
    condition = array_of(node.inputs[0])
    if condition is None or not condition.size or condition.any() != condition.all():
        return None
    taken = data_input(node, 1 if condition.any() else 2)
    return taken if static_shape(taken) == static_shape(node.outputs[0]) else None


_TESTS: dict[str, Callable[[ir.Node], ir.Value | None]] = {
    "Add": _neutral(0.0, either_side=True),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Div": _neutral(1.0, either_side=False),
    "Expand": _same_shape,
    "Identity": _identity,
    "Mul": _neutral(1.0, either_side=True),
    "Pad": _pad,
    "Reshape": _same_shape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _identity,
    "Sub": _neutral(0.0, either_side=False),
    "Tile": _same_shape,
    "Transpose": _transpose,
    "Where": _where,
}
