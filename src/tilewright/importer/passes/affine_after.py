"""A per-channel affine function after Conv, ConvTranspose or Gemm moves into its weight and bias.

    (W x + b) * s + t = (W * s) x + (b * s + t)

for BatchNormalization, Mul and Add by constants; in float64, rounded once. Only when the affine
node alone reads the linear node's result.
"""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.affine import affine_of
from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import sole_consumer
from tilewright.importer.linear import linear_of, rewrite_linear

NAME = "affine_after"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None:
            changes += _fold(editor, node)
    return PassResult(NAME, changes)


def _fold(editor: Editor, node: ir.Node) -> bool:
    affine = affine_of(node)
    if affine is None or sole_consumer(affine.data) is not node:
        return False
    linear = linear_of(affine.data.producer())
    if linear is None or linear.outputs != affine.scale.size:
        return False
    scaled = bool((affine.scale != 1.0).any())
    result = rewrite_linear(
        editor,
        linear,
        data=linear.node.inputs[0],  # type: ignore[arg-type]
        weight=linear.grouped_weight() * linear.per_output(affine.scale) if scaled else None,
        bias=linear.bias * affine.scale + affine.shift,
        before=node,
        sources=[linear.node, node],
    )
    return result is not None and editor.replace(node.outputs[0], result)
