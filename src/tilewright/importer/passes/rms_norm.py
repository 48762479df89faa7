"""The primitive spellings of root-mean-square normalisation become one node.

    x / sqrt(mean(x**2) + e) = RMSNormalization(x; 1, epsilon = e)
    x / sqrt(sum(x**2) + e) = RMSNormalization(x; 1 / sqrt(N), epsilon = e / N)   for N elements

Over axes that are not last, the same between Transposes and Reshapes.  The operator exists from
opset 23 on, to which the model then moves.  A factor behind is absorbed by affine_after.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, NearMiss, PassResult
from tilewright.importer.graphs import static_shape
from tilewright.importer.last_axis import over_last_axis
from tilewright.importer.statistics import Quotient, quotient_of

NAME = "rms_norm"

_OPSET = 23


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        quotient = quotient_of(node) if node.graph is not None else None
        if quotient is None or not is_root_mean_square(quotient):
            continue
        reason = _obstacle(quotient)
        if reason is not None:
            misses.append(NearMiss.at(node, NAME, reason))
            continue
        if editor.opset < _OPSET:
            _move_to_opset(model, _OPSET)
            editor = Editor(model)
        changes += _write(editor, quotient)
    return PassResult(NAME, changes, tuple(misses))


def is_root_mean_square(quotient: Quotient) -> bool:
    """Whether the denominator is the root of a mean of squares, or of a sum with an epsilon."""
    root = quotient.root
    if root.centred:
        return False
    return root.epsilon > 0 or math.isclose(root.square.factor, 1.0, rel_tol=1e-6)


def _obstacle(quotient: Quotient) -> str | None:
    root = quotient.root
    if quotient.numerator is not root.square.data:
        return f"it divides {quotient.numerator.name} by the root of {root.square.data.name}"
    if root.added:
        return f"epsilon ({root.added:g}) is added to the root, not to the mean of the squares"
    if root.floor:
        return f"its root is bounded by {root.floor:g} instead of having an epsilon added"
    return None


def _move_to_opset(model: ir.Model, opset: int) -> None:
    for graph in model.graphs():
        graph.opset_imports[""] = opset


def _write(editor: Editor, quotient: Quotient) -> bool:
    node, square = quotient.node, quotient.root.square
    shape, dtype = static_shape(square.data), square.data.dtype
    if shape is None or dtype is None:
        return False
    kind = dtype.numpy()
    sources = quotient.sources()
    last = len(shape) - len(square.axes)

    def write(x: ir.Value) -> ir.Value:
        scale = np.full(square.count, 1.0 / math.sqrt(square.factor), kind)
        return editor.emit(
            "RMSNormalization",
            [x, editor.constant(scale, f"{node.name}_scale")],
            {"axis": last, "epsilon": quotient.root.epsilon / square.factor},
            before=node,
            sources=sources,
        )[0]

    result = over_last_axis(editor, square.data, square.axes, write, before=node, sources=sources)
    if (quotient.scale != 1.0).any():
        factor = editor.constant(quotient.scale.astype(kind), f"{node.name}_factor")
        result = editor.emit("Mul", [result, factor], before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], result)
