"""A per-channel affine function before Conv, ConvTranspose or Gemm moves into its weight and bias.

    W (x * s + t) + b = (W * s) x + (b + W t)

in float64, rounded once. Zero padding pads the linear node's input, so a shift t other than 0 moves
only where there is none: always for Gemm, for Conv without padding, never for ConvTranspose (its
border pixels see fewer taps). Elsewhere the scale alone moves, past the shift, which stays as an
Add; zeros stay zeros under it:

    W (x * s + t) + b = (W * s) (x + t / s) + b
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.affine import Affine, affine_of
from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import sole_consumer, static_shape
from tilewright.importer.linear import Linear, linear_of, rewrite_linear

NAME = "affine_before"

# Beyond this t / s would drown x in float32.
_LARGEST_SHIFT_RATIO = 1e4


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None:
            changes += _fold(editor, node)
    return PassResult(NAME, changes)


def _fold(editor: Editor, node: ir.Node) -> bool:
    affine = _read_alone_by(node)
    linear = linear_of(node) if affine is not None else None
    if affine is None or linear is None:
        return False
    if not affine.shift.any() or _shift_passes(linear):
        return _absorb(editor, linear, affine)
    return _absorb_scale(editor, linear, affine)


def _read_alone_by(node: ir.Node) -> Affine | None:
    data = node.inputs[0] if node.inputs else None
    if data is None or sole_consumer(data) is not node:
        return None
    return affine_of(data.producer())


def _shift_passes(linear: Linear) -> bool:
    if linear.node.op_type == "Gemm":
        return True
    return linear.node.op_type == "Conv" and not any(linear.pads())


def _absorb(editor: Editor, linear: Linear, affine: Affine) -> bool:
    node, weight = linear.node, linear.grouped_weight()
    bias = linear.bias
    if affine.shift.any():
        moved = weight * linear.per_input(affine.shift)
        bias = bias + moved.sum(axis=tuple(range(2, moved.ndim))).reshape(-1)
    scaled = bool((affine.scale != 1.0).any())
    result = rewrite_linear(
        editor,
        linear,
        data=affine.data,
        weight=weight * linear.per_input(affine.scale) if scaled else None,
        bias=bias,
        before=node,
        sources=[affine.node, node],
    )
    return result is not None and editor.replace(node.outputs[0], result)


def _absorb_scale(editor: Editor, linear: Linear, last: Affine) -> bool:
    """Mul then Add, or BatchNormalization, becomes Add; the factor moves into the weight."""
    node, sources = linear.node, [last.node, linear.node]
    data, scale, shift = last.data, last.scale, last.shift
    first = _read_alone_by(last.node) if last.node.op_type == "Add" else None
    if first is not None and not first.shift.any():
        data, scale = first.data, first.scale
        sources.insert(0, first.node)
    shape, dtype = static_shape(data), data.dtype
    if shape is None or dtype is None or not scale.all() or (scale == 1.0).all():
        return False
    ratio = shift / scale
    if np.abs(ratio).max() > _LARGEST_SHIFT_RATIO:
        return False
    uniform = bool((ratio == ratio[0]).all())
    content = ratio[0] if uniform else ratio.reshape(-1, *(1,) * (len(shape) - 2))
    operand = editor.constant(np.asarray(content, dtype.numpy()), f"{last.node.name}_shift")
    shifted = editor.emit("Add", [data, operand], before=node, sources=sources[:-1])[0]
    result = rewrite_linear(
        editor,
        linear,
        data=shifted,
        weight=linear.grouped_weight() * linear.per_input(scale),
        bias=linear.bias,
        before=node,
        sources=sources,
    )
    if result is None:
        maker = shifted.producer()
        assert maker is not None
        editor.discard(maker)
        return False
    return editor.replace(node.outputs[0], result)
