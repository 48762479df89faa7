"""Matrix products of a rank-2 tensor with a constant matrix become Gemm in one form.

    MatMul(x, W) = Gemm(x, W^T; transB)
    alpha op(A) op(B) + beta C = Gemm(op(A), (alpha op(B))^T, beta C; transB)

In canonical form alpha = beta = 1, transA = 0, transB = 1, B is a constant [N, K] and C, if given,
a constant [N]. A Gemm with a computed B becomes Transpose, MatMul, Mul and Add as its attributes
ask.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    data_input,
    float_array,
    float_attribute,
    input_at,
    int_attribute,
    is_float_constant,
    static_shape,
)
from tilewright.importer.linear import is_canonical_gemm

NAME = "gemm"

_CANONICAL = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is None or node.domain != "":
            continue
        if node.op_type == "MatMul":
            changes += _from_matmul(editor, node)
        elif node.op_type == "Gemm":
            changes += _from_gemm(editor, node)
    return PassResult(NAME, changes)


def _from_matmul(editor: Editor, node: ir.Node) -> bool:
    data, weight = data_input(node, 0), array_of(node.inputs[1])
    shape = static_shape(data)
    if weight is None or not is_float_constant(node.inputs[1]) or weight.ndim != 2:
        return False
    if shape is None or len(shape) != 2:
        return False
    operand = editor.constant(weight.T, data_input(node, 1).name or "weight")
    result = editor.emit("Gemm", [data, operand], _CANONICAL, before=node, sources=(node,))[0]
    return editor.replace(node.outputs[0], result)


def _from_gemm(editor: Editor, node: ir.Node) -> bool:
    weight, bias = array_of(node.inputs[1]), input_at(node, 2)
    constant = weight is not None and is_float_constant(node.inputs[1])
    bias_array = float_array(bias)
    outputs = static_shape(node.outputs[0])
    if outputs is None:
        return False
    per_output = (
        bias_array is not None
        and bias_array.size in (1, outputs[1])
        and (bias_array.shape[-1:] in ((), (1,), (outputs[1],)))
    )
    if (
        constant
        and is_canonical_gemm(node)
        and (bias is None or (bias_array is not None and bias_array.shape == (outputs[1],)))
    ):
        return False
    alpha, beta = float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0)
    data = data_input(node, 0)
    if int_attribute(node, "transA", 0):
        data = _emit(editor, node, "Transpose", [data], {"perm": [1, 0]})
    transposed = bool(int_attribute(node, "transB", 0))
    fused: ir.Value | None = None
    if constant and weight is not None:
        matrix = weight if transposed else weight.T
        matrix = matrix if alpha == 1.0 else matrix.astype(np.float64) * alpha
        operand = editor.constant(matrix.astype(weight.dtype), data_input(node, 1).name or "weight")
        if per_output and bias is not None and bias_array is not None:
            content = np.broadcast_to(bias_array.reshape(-1) * beta, (outputs[1],))
            fused = editor.constant(content.astype(weight.dtype), bias.name or "bias")
        result = editor.emit(
            "Gemm",
            [data, operand] + ([fused] if fused is not None else []),
            _CANONICAL,
            before=node,
            sources=(node,),
        )[0]
    else:
        right = data_input(node, 1)
        if transposed:
            right = _emit(editor, node, "Transpose", [right], {"perm": [1, 0]})
        result = _scaled(editor, node, _emit(editor, node, "MatMul", [data, right]), alpha)
    if bias is not None and fused is None:
        result = _emit(editor, node, "Add", [result, _scaled(editor, node, bias, beta)])
    return editor.replace(node.outputs[0], result)


def _scaled(editor: Editor, node: ir.Node, value: ir.Value, factor: float) -> ir.Value:
    if factor == 1.0 or value.dtype is None:
        return value
    constant = editor.constant(np.asarray(factor, value.dtype.numpy()), f"{node.name}_factor")
    return _emit(editor, node, "Mul", [value, constant])


def _emit(
    editor: Editor,
    node: ir.Node,
    op_type: str,
    inputs: list[ir.Value],
    attributes: dict[str, list[int]] | None = None,
) -> ir.Value:
    return editor.emit(op_type, inputs, attributes, before=node, sources=(node,))[0]
