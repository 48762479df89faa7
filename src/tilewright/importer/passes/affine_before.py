"""A per-channel affine function before Conv, ConvTranspose or Gemm moves into its weight and bias.

    W (x * s + t) + b = (W * s) x + (b + W t)

in float64, rounded once. Zero padding pads the linear node's input, so a shift t other than 0 moves
only where there is none: always for Gemm, for Conv without padding, never for ConvTranspose (its
border pixels see fewer taps). Elsewhere the scale alone moves, past the shift, which stays as an
Add; zeros stay zeros under it:

    W (x * s + t) + b = (W * s) (x + t / s) + b

Before a MatMul by a matrix, along the last axis: (x * s + t) W = x (s * W) + t W.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.affine import Affine, affine_of, along_axis, elementwise_of
from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import array_of, sole_consumer, static_shape
from tilewright.importer.linear import Linear, linear_of, rewrite_linear
from tilewright.importer.sinks import matrix_of, sink_of

NAME = "affine_before"

# Beyond this t / s would drown x in float32.
_LARGEST_SHIFT_RATIO = 1e4


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None:
            changes += _fold(editor, node) or _fold_into_matrix(editor, node)
    return PassResult(NAME, changes)


def _fold(editor: Editor, node: ir.Node) -> bool:
    affine = _read_alone_by(node)
    linear = linear_of(node) if affine is not None else None
    if affine is None or linear is None:
        return False
    if not affine.shift.any() or _shift_passes(linear):
        return _absorb(editor, linear, affine)
    return _absorb_scale(editor, linear, affine)


def _fold_into_matrix(editor: Editor, node: ir.Node) -> bool:
    matrix = matrix_of(node) if node.op_type == "MatMul" else None
    maker = matrix.data.producer() if matrix is not None else None
    if matrix is None or maker is None or sole_consumer(matrix.data) is not node:
        return False
    operands = elementwise_of(maker)
    if operands is None or matrix_of(maker) is not None or sink_of(operands[0]) is not None:
        return False
    data, *factors = operands
    shape, weight = static_shape(data) or (), array_of(matrix.weight)
    scale, shift = (along_axis(factor, shape, len(shape) - 1) for factor in factors)
    if scale is None or shift is None or weight is None:
        return False
    if (scale == 1.0).all() and not shift.any():
        return False
    with np.errstate(over="ignore"):
        scaled = (weight.astype(np.float64) * scale[:, np.newaxis]).astype(weight.dtype)
        bias = (shift @ weight.astype(np.float64)).astype(weight.dtype)
    if not np.isfinite(scaled).all() or not np.isfinite(bias).all():
        return False
    sources = (maker, node)
    operand = editor.constant(scaled, matrix.weight.name or "weight")
    result = editor.emit("MatMul", [data, operand], before=node, sources=sources)[0]
    if bias.any():
        addend = editor.constant(bias, f"{node.name}_bias")
        result = editor.emit("Add", [result, addend], before=node, sources=sources)[0]
    return editor.replace(node.outputs[0], result)


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
