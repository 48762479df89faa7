"""The primitive spellings of a division by the Euclidean norm become LpNormalization.

    x / ReduceL2(x) = x / sqrt(sum(x**2)) = LpNormalization(x; p = 2)

also with the norm bounded from below by at most 1e-5, or that added to it: only vectors that are
nearly zero differ, and zero stays zero.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, NearMiss, PassResult
from tilewright.importer.graphs import static_shape
from tilewright.importer.last_axis import over_last_axis
from tilewright.importer.passes.rms_norm import is_root_mean_square
from tilewright.importer.statistics import Quotient, quotient_of

NAME = "l2_norm"

_LARGEST_FLOOR = 1e-5


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        quotient = quotient_of(node) if node.graph is not None else None
        if quotient is None or quotient.root.centred or is_root_mean_square(quotient):
            continue
        reason = _obstacle(quotient)
        if reason is None:
            changes += _write(editor, quotient)
        else:
            misses.append(NearMiss.at(node, NAME, reason))
    return PassResult(NAME, changes, tuple(misses))


def _obstacle(quotient: Quotient) -> str | None:
    root = quotient.root
    if quotient.numerator is not root.square.data:
        return f"it divides {quotient.numerator.name} by the norm of {root.square.data.name}"
    floor = max(root.floor, root.added)
    if floor > _LARGEST_FLOOR or root.added < 0:
        return f"a norm below {floor:g} is not normalised to 1"
    return None


def _write(editor: Editor, quotient: Quotient) -> bool:
    node, square = quotient.node, quotient.root.square
    shape, dtype = static_shape(square.data), square.data.dtype
    if shape is None or dtype is None:
        return False
    sources = quotient.sources()

    def write(axis: int, x: ir.Value) -> ir.Value:
        attributes = {"axis": axis, "p": 2}
        return editor.emit("LpNormalization", [x], attributes, before=node, sources=sources)[0]

    if len(square.axes) == 1:
        result = write(square.axes[0], square.data)
    else:
        last = len(shape) - len(square.axes)
        result = over_last_axis(
            editor,
            square.data,
            square.axes,
            lambda x: write(last, x),
            before=node,
            sources=sources,
        )
    scale = quotient.scale * math.sqrt(square.count / square.factor)
    if not np.allclose(scale, 1.0, rtol=1e-6):
        factor = editor.constant(scale.astype(dtype.numpy()), f"{node.name}_factor")
        result = editor.emit("Mul", [result, factor], before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], result)
