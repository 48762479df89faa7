"""The spellings of the hard swish become one node.

    x * HardSigmoid(x; 1/6, 1/2) = HardSwish(x)
    (x * Clip(x + 3, 0, 6)) * 1/6 = HardSwish(x)

Only when nothing else reads the values between.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    float_attribute,
    producer_of,
    scalar_of,
    sole_consumer,
)
from tilewright.importer.passes.hard_sigmoid import shifted_clamp

NAME = "hard_swish"

_TOLERANCE = 1e-6


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.domain == "" and node.op_type == "Mul":
            changes += _gated(editor, node) or _scaled(editor, node)
    return PassResult(NAME, changes)


def _gated(editor: Editor, node: ir.Node) -> bool:
    for position in (0, 1):
        data, gate = node.inputs[1 - position], node.inputs[position]
        sigmoid = producer_of(gate, "HardSigmoid")
        if sigmoid is None or data is None or gate is None or sigmoid.inputs[0] is not data:
            continue
        alpha = float_attribute(sigmoid, "alpha", 0.2)
        beta = float_attribute(sigmoid, "beta", 0.5)
        usual = math.isclose(alpha, 1 / 6, rel_tol=_TOLERANCE) and math.isclose(
            beta, 0.5, rel_tol=_TOLERANCE
        )
        if usual and sole_consumer(gate) is node:
            return _write(editor, data, [sigmoid, node])
    return False


def _scaled(editor: Editor, node: ir.Node) -> bool:
    factor, product = scalar_of(node.inputs[1]), producer_of(node.inputs[0], "Mul")
    if factor is None or product is None or not math.isclose(factor, 1 / 6, rel_tol=_TOLERANCE):
        return False
    if sole_consumer(product.outputs[0]) is not node:
        return False
    for position in (0, 1):
        data, value = product.inputs[1 - position], product.inputs[position]
        gate = shifted_clamp(value)
        if gate is None or data is None or value is None or gate.data is not data:
            continue
        if gate.offset == 3.0 and gate.high == 6.0 and sole_consumer(value) is product:
            return _write(editor, data, [gate.add, gate.clip, product, node])
    return False


def _write(editor: Editor, data: ir.Value, sources: list[ir.Node]) -> bool:
    result = editor.emit("HardSwish", [data], before=sources[-1], sources=sources)[0]
    return editor.replace(sources[-1].outputs[0], result)
