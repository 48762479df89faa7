"""A per-channel affine function before Conv, ConvTranspose or Gemm moves into its weight and bias.

    W (x * s + t) + b = (W * s) x + (b + W t)

in float64, rounded once. Zero padding pads the linear node's input, so a shift t other than 0 moves only
where there is none: always for Gemm, for Conv without padding, never for ConvTranspose (its border
pixels see fewer taps).
"""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.affine import affine_of
from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import sole_consumer
from tilewright.importer.linear import Linear, linear_of, rewrite_linear

NAME = "affine_before"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None:
            changes += _fold(editor, node)
    return PassResult(NAME, changes)


def _fold(editor: Editor, node: ir.Node) -> bool:
    linear = linear_of(node)
    if linear is None or node.inputs[0] is None:
        return False
    affine = affine_of(node.inputs[0].producer())
    if affine is None or sole_consumer(node.inputs[0]) is not node:
        return False
    if affine.shift.any() and not _shift_passes(linear):
        return False
    weight = linear.grouped_weight()
    taps = tuple(range(3, weight.ndim))
    moved = (weight * linear.per_input(affine.shift)).sum(axis=taps) if affine.shift.any() else None
    scaled = bool((affine.scale != 1.0).any())
    result = rewrite_linear(
        editor,
        linear,
        data=affine.data,
        weight=weight * linear.per_input(affine.scale) if scaled else None,
        bias=linear.bias if moved is None else linear.bias + moved.sum(axis=2).reshape(-1),
        before=node,
        sources=[affine.node, node],
    )
    return result is not None and editor.replace(node.outputs[0], result)


def _shift_passes(linear: Linear) -> bool:
    if linear.node.op_type == "Gemm":
        return True
    return linear.node.op_type == "Conv" and not any(linear.pads())
