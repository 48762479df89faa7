"""A Split moves before the transposes and reshapes of a joint projection.

    Split(Transpose(x, p); a) = Transpose(Split(x; p[a]), p) of each part
    Split(Reshape(x, [.., s, d, ..]); s) = Reshape(Split(x; s d), [.., part, d, ..]) of each part
    Reshape(Transpose(x, p)) that drops axes of size 1 = Transpose(Reshape(x), the rest of p)

so that queries, keys and values of one projection are taken apart where they are computed, and each
is cut into heads as if it had a projection of its own.  The first two apply where nothing but
reshapes and transposes, which nothing else reads, lies between the projection and the Split.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    int_attribute,
    ints_attribute,
    producer_of,
    sole_consumer,
    static_shape,
)
from tilewright.importer.movement import Route, route_to
from tilewright.importer.sinks import sink_of

NAME = "split_early"

_Place = tuple[int, int]
"""An axis, and how many of its elements one step along the split axis takes."""


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "Split":
            changes += _move(editor, node)
        elif node.op_type == "Reshape":
            changes += _squeeze_early(editor, node)
    return PassResult(NAME, changes)


def _move(editor: Editor, node: ir.Node) -> bool:
    route = route_to(data_input(node), node)
    lengths = array_of(input_at(node, 1))
    if route is None or lengths is None or not route.steps or sink_of(route.start) is None:
        return False
    places = _places(route, int_attribute(node, "axis", 0))
    if places is None:
        return False
    axis, step = places[0]
    parts = [int(length) * step for length in lengths]
    outputs = editor.emit(
        "Split",
        [route.start, editor.constant(np.asarray(parts, np.int64), f"{node.name}_split")],
        {"axis": axis},
        before=node,
        sources=(node,),
        outputs=len(parts),
    )
    for old, made, length in zip(node.outputs, outputs, lengths, strict=True):
        editor.replace(old, _moved_alike(editor, route, places, made, int(length), node))
    return True


def _places(route: Route, axis: int) -> list[_Place] | None:
    """Where the split axis is at the start of the route and after each step; None if in pieces."""
    places = [(axis, 1)]
    for step in reversed(route.steps):
        axis, size = places[0]
        if step.node.op_type == "Transpose":
            perm = ints_attribute(step.node, "perm") or ()
            places.insert(0, (perm[axis], size))
            continue
        before = static_shape(step.node.inputs[0]) or ()
        after = static_shape(step.node.outputs[0]) or ()
        found = _before_reshape(before, after, (axis, size))
        if step.node.op_type != "Reshape" or found is None:
            return None
        places.insert(0, found)
    return places


def _before_reshape(
    before: tuple[int, ...], after: tuple[int, ...], place: _Place
) -> _Place | None:
    """The axis of which the place's axis is the leading part, whole axes following it."""
    axis, size = place
    for candidate, dim in enumerate(before):
        if math.prod(before[:candidate]) != math.prod(after[:axis]) or dim == 1:
            continue
        ends = {math.prod(after[axis : end + 1]) for end in range(axis, len(after))}
        return (candidate, size * (dim // after[axis])) if dim in ends else None
    return None


def _moved_alike(
    editor: Editor,
    route: Route,
    places: list[_Place],
    value: ir.Value,
    length: int,
    node: ir.Node,
) -> ir.Value:
    for step, (axis, size) in zip(route.steps, places[1:], strict=True):
        if step.node.op_type == "Transpose":
            perm = list(ints_attribute(step.node, "perm") or ())
            value = editor.emit(
                "Transpose", [value], {"perm": perm}, before=node, sources=(step.node,)
            )[0]
            continue
        shape = list(static_shape(step.node.outputs[0]) or ())
        shape[axis] = length * size
        operand = editor.constant(np.asarray(shape, np.int64), f"{step.node.name}_shape")
        value = editor.emit("Reshape", [value, operand], before=node, sources=(step.node,))[0]
    return value


def _squeeze_early(editor: Editor, node: ir.Node) -> bool:
    transpose = producer_of(node.inputs[0], "Transpose")
    if transpose is None or sole_consumer(transpose.outputs[0]) is not node:
        return False
    if producer_of(transpose.inputs[0], "Reshape") is None:
        return False
    before, after = static_shape(transpose.outputs[0]), static_shape(node.outputs[0])
    perm, shape = ints_attribute(transpose, "perm"), static_shape(transpose.inputs[0])
    if before is None or after is None or perm is None or shape is None:
        return False
    dropped = _dropped_axes(before, after)
    if not dropped:
        return False
    gone = {perm[axis] for axis in dropped}
    kept = [axis for axis in range(len(shape)) if axis not in gone]
    target = editor.constant(
        np.asarray([shape[axis] for axis in kept], np.int64), f"{node.name}_shape"
    )
    sources = (transpose, node)
    value = editor.emit(
        "Reshape", [data_input(transpose), target], before=node, sources=sources[1:]
    )[0]
    order = [kept.index(axis) for axis in perm if axis not in gone]
    value = editor.emit("Transpose", [value], {"perm": order}, before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], value)


def _dropped_axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[int]:
    """The axes of size 1 without which `before` is `after`, the first ones; empty if it is not."""
    dropped, left = [], list(after)
    for axis in range(len(before) - 1, -1, -1):
        if left and left[-1] == before[axis]:
            left.pop()
        elif before[axis] == 1:
            dropped.append(axis)
        else:
            return []
    return [] if left else dropped[::-1]
