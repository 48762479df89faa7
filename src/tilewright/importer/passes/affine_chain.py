"""Neighbouring affine functions become one.

    (x * a) * b = x * (a b)              (x + a) + b = x + (a + b)
    BatchNormalization beside a per-channel Mul, Add or BatchNormalization = one BatchNormalization

Constants are combined in float64 and rounded once; only when nothing else reads the value between.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.affine import Affine, Float64, affine_of
from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    float_array,
    producer_of,
    sole_consumer,
    static_shape,
)

NAME = "affine_chain"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "":
            changes += _merge_equal(editor, node) or _merge_into_batch_norm(editor, node)
    return PassResult(NAME, changes)


def _merge_equal(editor: Editor, node: ir.Node) -> bool:
    if node.op_type not in ("Add", "Mul"):
        return False
    first = producer_of(node.inputs[0], node.op_type)
    if first is None or sole_consumer(first.outputs[0]) is not node:
        return False
    a, b = float_array(first.inputs[1]), float_array(node.inputs[1])
    typed = array_of(node.inputs[1])
    if a is None or b is None or typed is None:
        return False
    with np.errstate(all="ignore"):
        merged = np.asarray(a + b if node.op_type == "Add" else a * b).astype(typed.dtype)
    if not np.isfinite(merged).all():
        return False
    operand = editor.constant(merged, data_input(node, 1).name or "operand")
    result = editor.emit(
        node.op_type, [first.inputs[0], operand], before=node, sources=(first, node)
    )[0]
    return editor.replace(node.outputs[0], result)


def _merge_into_batch_norm(editor: Editor, node: ir.Node) -> bool:
    second = affine_of(node)
    if second is None or sole_consumer(second.data) is not node:
        return False
    first = affine_of(second.data.producer())
    if first is None or "BatchNormalization" not in (node.op_type, first.node.op_type):
        return False
    scale = first.scale * second.scale
    shift = first.shift * second.scale + second.shift
    return _write(editor, first, node, scale, shift)


def _write(
    editor: Editor,
    first: Affine,
    node: ir.Node,
    scale: Float64,
    shift: Float64,
) -> bool:
    """BatchNormalization with mean 0, variance 1, epsilon 0: y = x * scale + shift."""
    dtype, shape = first.data.dtype, static_shape(first.data)
    if dtype is None or shape is None:
        return False
    kind = dtype.numpy()
    with np.errstate(over="ignore"):
        parameters = [scale.astype(kind), shift.astype(kind)]
    if not all(np.isfinite(parameter).all() for parameter in parameters):
        return False
    parameters += [np.zeros(shape[1], kind), np.ones(shape[1], kind)]
    roles = ("scale", "bias", "mean", "variance")
    operands = [
        editor.constant(parameter, f"{node.name}_{role}")
        for parameter, role in zip(parameters, roles, strict=True)
    ]
    result = editor.emit(
        "BatchNormalization",
        [first.data, *operands],
        {"epsilon": 0.0},
        before=node,
        sources=(first.node, node),
    )[0]
    return editor.replace(node.outputs[0], result)
