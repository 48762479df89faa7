"""Relu, Clip, Max and Min with scalar constants are clamps; chains of clamps are one.

    Max(x, c) = Clip(x, c, +)       Min(x, c) = Clip(x, -, c)      Clip(x, 0, +) = Relu(x)
    Clip(Clip(x, a, b), c, d) = Clip(x, clip(a, c, d), clip(b, c, d))      Relu(x) as Clip(x, 0, +)

- and + are the type's lowest and largest number. Chains merge when nothing else reads the value
  between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import scalar_of, sole_consumer, static_shape

NAME = "clamp"


@dataclass(frozen=True)
class Clamp:
    node: ir.Node
    data: ir.Value
    low: float
    high: float


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None:
            changes += _simplify(editor, node)
    return PassResult(NAME, changes)


def clamp_of(node: ir.Node | None) -> Clamp | None:
    """The clamp that the node computes, or None."""
    if node is None or node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    data = node.inputs[0]
    if data.dtype is None or data.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return None
    lowest, largest = _limits(data)
    if node.op_type == "Relu":
        return Clamp(node, data, 0.0, largest)
    if node.op_type == "Clip":
        low, high = scalar_of(node.inputs[1]), scalar_of(node.inputs[2])
        if low is None or high is None or not low <= high:
            return None
        return Clamp(node, data, low, high)
    if node.op_type in ("Max", "Min") and static_shape(data) == static_shape(node.outputs[0]):
        bound = scalar_of(node.inputs[1]) if len(node.inputs) == 2 else None
        if bound is None or np.isnan(bound):
            return None
        bound = min(max(bound, lowest), largest)
        limits = (bound, largest) if node.op_type == "Max" else (lowest, bound)
        return Clamp(node, data, *limits)
    return None


def _limits(data: ir.Value) -> tuple[float, float]:
    assert data.dtype is not None
    info = np.finfo(data.dtype.numpy())
    return float(info.min), float(info.max)


def _simplify(editor: Editor, node: ir.Node) -> bool:
    last = clamp_of(node)
    if last is None:
        return False
    sources, data, low, high = [node], last.data, last.low, last.high
    inner = clamp_of(data.producer())
    if inner is not None and sole_consumer(data) is node:
        sources.insert(0, inner.node)
        data = inner.data
        low, high = (min(max(bound, last.low), last.high) for bound in (inner.low, inner.high))
    largest = _limits(data)[1]
    wanted = "Relu" if low == 0.0 and high == largest else "Clip"
    if len(sources) == 1 and node.op_type == wanted:
        return False
    operands = [data]
    if wanted == "Clip":
        kind = data.dtype.numpy() if data.dtype is not None else np.float32
        operands += [
            editor.constant(np.asarray(bound, kind), f"{node.name}_{role}")
            for bound, role in ((low, "min"), (high, "max"))
        ]
    result = editor.emit(wanted, operands, before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], result)
