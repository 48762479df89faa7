"""The primitive spelling of the hard sigmoid becomes one node.

    Clip(x + b, 0, h) * c = HardSigmoid(x; alpha = c, beta = b c)          when h c = 1

(typically b = 3, h = 6, c = 1/6). Only when nothing else reads the values between.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import producer_of, scalar_of, sole_consumer, static_shape
from tilewright.importer.passes.clamp import clamp_of

NAME = "hard_sigmoid"

# 1 / c is rounded to float32 once in the file and once by the reciprocal.
_TOLERANCE = 1e-6


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type == "Mul":
            changes += _fuse(editor, node)
    return PassResult(NAME, changes)


def _fuse(editor: Editor, node: ir.Node) -> bool:
    factor = scalar_of(node.inputs[1])
    gate = shifted_clamp(node.inputs[0])
    if factor is None or gate is None or abs(gate.high * factor - 1.0) > _TOLERANCE:
        return False
    if sole_consumer(gate.clip.outputs[0]) is not node:
        return False
    if static_shape(gate.data) != static_shape(node.outputs[0]):
        return False
    alpha = 1.0 / gate.high
    result = editor.emit(
        "HardSigmoid",
        [gate.data],
        {"alpha": alpha, "beta": gate.offset * alpha},
        before=node,
        sources=(gate.add, gate.clip, node),
    )[0]
    return editor.replace(node.outputs[0], result)


@dataclass(frozen=True)
class ShiftedClamp:
    """Clip(data + offset, 0, high) where nothing else reads the sum."""

    data: ir.Value
    offset: float
    high: float
    add: ir.Node
    clip: ir.Node


def shifted_clamp(value: ir.Value | None) -> ShiftedClamp | None:
    """The parts of a value of the form Clip(x + b, 0, h), or None."""
    clamp = clamp_of(value.producer() if value is not None else None)
    if clamp is None or clamp.low != 0.0:
        return None
    add = producer_of(clamp.data, "Add")
    if add is None or add.inputs[0] is None or sole_consumer(clamp.data) is not clamp.node:
        return None
    offset = scalar_of(add.inputs[1])
    if offset is None:
        return None
    return ShiftedClamp(add.inputs[0], offset, clamp.high, add, clamp.node)
