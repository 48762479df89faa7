"""Chains of operators that only move elements: Reshape, Transpose, Slice, Split.

A route leads from the value that a computing node makes, through movement that nothing else reads,
to one reader.  What holds per channel at its start holds per element at its end, by labels that are
moved along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    int_attribute,
    ints_attribute,
    sole_consumer,
    static_shape,
)

Labels = npt.NDArray[np.int32]

_OPERATORS = ("Reshape", "Transpose", "Slice", "Split")


@dataclass(frozen=True)
class Step:
    """A movement node, and which of its outputs the route takes."""

    node: ir.Node
    output: int


@dataclass(frozen=True)
class Route:
    """From `start` through `steps`, each read by the next alone."""

    start: ir.Value
    steps: tuple[Step, ...]


def route_to(value: ir.Value, reader: ir.Node) -> Route | None:
    """The longest route to the reader's operand `value`; None when others read along it."""
    steps: list[Step] = []
    while True:
        if sole_consumer(value) is not reader:
            return None
        node = value.producer()
        if node is None or node.domain != "" or node.op_type not in _OPERATORS:
            return Route(value, tuple(reversed(steps)))
        if static_shape(value) is None or not _is_static(node):
            return Route(value, tuple(reversed(steps)))
        steps.append(Step(node, node.outputs.index(value)))
        value, reader = data_input(node), node


def start_of(value: ir.Value) -> ir.Value:
    """The value before all movement that leads to this one, whoever else reads along the way."""
    while True:
        node = value.producer()
        if node is None or node.domain != "" or node.op_type not in _OPERATORS:
            return value
        if static_shape(value) is None or not _is_static(node):
            return value
        value = data_input(node)


def _is_static(node: ir.Node) -> bool:
    return all(array_of(value) is not None for value in node.inputs[1:] if value is not None)


def channel_labels(route: Route, axis: int) -> Labels | None:
    """For each element at the end of the route, its index along `axis` at the start.

    None where a Split sends elements of one channel to this and to another output.
    """
    shape = static_shape(route.start)
    assert shape is not None
    column = np.arange(shape[axis], dtype=np.int32).reshape(
        [-1 if k == axis else 1 for k in range(len(shape))]
    )
    labels: npt.NDArray[Any] = np.broadcast_to(column, shape)
    for step in route.steps:
        parts = _moved(step.node, labels)
        labels = parts[step.output]
        others = [part for index, part in enumerate(parts) if index != step.output]
        if others:
            mine = np.zeros(shape[axis], np.bool_)
            mine[labels.reshape(-1)] = True
            if any(mine[part.reshape(-1)].any() for part in others):
                return None
    return labels


def _moved(node: ir.Node, array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    if node.op_type == "Reshape":
        return [array.reshape(static_shape(node.outputs[0]) or ())]
    if node.op_type == "Transpose":
        return [array.transpose(ints_attribute(node, "perm"))]
    if node.op_type == "Split":
        lengths = array_of(input_at(node, 1))
        assert lengths is not None
        cuts = np.cumsum(lengths)[:-1]
        return [*np.split(array, [int(cut) for cut in cuts], int_attribute(node, "axis", 0))]
    return [array[slices_of(node)]]


def slices_of(node: ir.Node) -> tuple[slice, ...]:
    """One slice per axis of a canonical Slice."""
    starts, ends, axes, steps = (_ints(input_at(node, index)) for index in range(1, 5))
    slices = [slice(None)] * len(static_shape(data_input(node)) or ())
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        slices[axis] = slice(start, end if step > 0 or end >= 0 else None, step)
    return tuple(slices)


def _ints(value: ir.Value | None) -> list[int]:
    array = array_of(value)
    assert array is not None
    return [int(item) for item in array.reshape(-1)]


def replay(editor: Editor, route: Route, start: ir.Value, sources: Sequence[ir.Node]) -> ir.Value:
    """The end of the route when it starts at another value of the same shape.

    The nodes are written where the old ones stand; other outputs of a Split move to the new one.
    """
    value = start
    for step in route.steps:
        node = step.node
        attributes: dict[str, Attribute] = {
            name: attribute.value for name, attribute in node.attributes.items()
        }
        made = editor.emit(
            node.op_type,
            [value, *node.inputs[1:]],
            attributes,
            before=node,
            sources=(node,) if step is not route.steps[-1] else sources,
            outputs=len(node.outputs),
        )
        for index, (old, new) in enumerate(zip(node.outputs, made, strict=True)):
            if index != step.output:
                editor.replace(old, new)
        value = made[step.output]
    return value
