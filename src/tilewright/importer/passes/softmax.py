"""The primitive spellings of Softmax and LogSoftmax become one node.

    Exp(z) / ReduceSum(Exp(z), a) = Exp(z) * Reciprocal(ReduceSum(Exp(z), a)) = Softmax(z; a)
    z - Log(ReduceSum(Exp(z), a)) = z - ReduceLogSumExp(z, a) = LogSoftmax(z; a)
    Softmax(x - ReduceMax(x, a); a) = Softmax(x; a)

Several axes become one by Reshape.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from tilewright.importer.edit import Editor, NearMiss, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    input_at,
    int_attribute,
    producer_of,
    scalar_of,
    static_shape,
)
from tilewright.importer.last_axis import over_last_axis
from tilewright.importer.statistics import Mean, broadcasts_along, mean_of, without_reshapes

NAME = "softmax"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type in ("Softmax", "LogSoftmax"):
            changes += _without_shift(editor, node)
            continue
        found = _match(node)
        if isinstance(found, str):
            misses.append(NearMiss.at(node, NAME, found))
        elif found is not None:
            changes += _write(editor, node, *found)
    return PassResult(NAME, changes, tuple(misses))


def _match(node: ir.Node) -> tuple[str, ir.Value, Mean] | str | None:
    """The operator, its input and the sum of exponentials that the node divides by."""
    if node.op_type == "Div":
        return _quotient(data_input(node, 0), data_input(node, 1))
    if node.op_type == "Mul":
        for position in (1, 0):
            inverse = producer_of(node.inputs[position], "Reciprocal")
            if inverse is not None:
                return _quotient(data_input(node, 1 - position), data_input(inverse))
    return _difference(node) if node.op_type == "Sub" else None


def _quotient(numerator: ir.Value, total: ir.Value) -> tuple[str, ir.Value, Mean] | str | None:
    exponential = producer_of(numerator, "Exp")
    if exponential is None:
        return None
    added = producer_of(total, "Add")
    epsilon = scalar_of(input_at(added, 1)) if added is not None else None
    if added is not None and epsilon is not None:
        found = _sum_of(added.inputs[0])
        if found is not None and found.data is numerator:
            return f"{epsilon:g} is added to the sum of the exponentials"
    found = _sum_of(total)
    if found is None:
        return None
    if found.data is not numerator:
        return f"it divides {numerator.name} by a sum over {found.data.name}"
    if not broadcasts_along(total, found):
        return "the sum of the exponentials does not broadcast along its axes"
    return "Softmax", data_input(exponential), found


def _sum_of(value: ir.Value | None) -> Mean | None:
    found = mean_of(value)
    if found is None or not math.isclose(found.factor, found.count, rel_tol=1e-6):
        return None
    return found


def _difference(node: ir.Node) -> tuple[str, ir.Value, Mean] | None:
    data, shift = data_input(node, 0), data_input(node, 1)
    logarithm = producer_of(shift, "Log")
    if logarithm is not None:
        found = _sum_of(logarithm.inputs[0])
        exponential = producer_of(found.data, "Exp") if found is not None else None
        if found is None or exponential is None or exponential.inputs[0] is not data:
            return None
        return ("LogSoftmax", data, found) if broadcasts_along(shift, found) else None
    reduction = producer_of(shift, "ReduceLogSumExp")
    axes = array_of(input_at(reduction, 1)) if reduction is not None else None
    if reduction is None or axes is None or reduction.inputs[0] is not data:
        return None
    found = Mean(data, tuple(sorted(int(axis) for axis in axes)))
    return ("LogSoftmax", data, found) if broadcasts_along(shift, found) else None


def _write(editor: Editor, node: ir.Node, op_type: str, data: ir.Value, total: Mean) -> bool:
    shape = static_shape(data)
    if shape is None or shape != static_shape(node.outputs[0]):
        return False
    sources = (node,)

    def write(axis: int, value: ir.Value) -> ir.Value:
        return editor.emit(op_type, [value], {"axis": axis}, before=node, sources=sources)[0]

    if len(total.axes) == 1:
        result = write(total.axes[0], data)
    else:
        last = len(shape) - len(total.axes)
        result = over_last_axis(
            editor, data, total.axes, lambda x: write(last, x), before=node, sources=sources
        )
    return editor.replace(node.outputs[0], result)


def _without_shift(editor: Editor, node: ir.Node) -> bool:
    """A maximum that is subtracted along the axis changes nothing."""
    difference = producer_of(node.inputs[0], "Sub")
    shift = difference.inputs[1] if difference is not None else None
    maximum = producer_of(without_reshapes(shift), "ReduceMax")
    if difference is None or maximum is None or maximum.inputs[0] is not difference.inputs[0]:
        return False
    data = data_input(difference)
    axis = int_attribute(node, "axis", -1)
    shape, rank = static_shape(shift) or (), len(static_shape(data) or ())
    padded = (1,) * (rank - len(shape)) + shape
    if len(padded) != rank or padded[axis] != 1:
        return False
    result = editor.emit(
        node.op_type, [data], {"axis": axis}, before=node, sources=(difference, node)
    )[0]
    return editor.replace(node.outputs[0], result)
