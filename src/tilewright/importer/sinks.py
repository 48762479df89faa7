"""Operators that take an affine function of each channel of their result into their constants.

Conv, ConvTranspose, Gemm                   channels on axis 1
MatMul by a matrix, with the Add behind     channels on the last axis
LayerNormalization, RMSNormalization        elements of the last axis
GroupNormalization, InstanceNormalization   channels on axis 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor
from tilewright.importer.graphs import (
    Array,
    array_of,
    data_input,
    float_array,
    input_at,
    is_float_constant,
    producer_of,
    sole_consumer,
    static_shape,
)
from tilewright.importer.linear import Float64, linear_of, rewrite_linear


@dataclass(frozen=True)
class Sink:
    """What makes a value, as something that can make `value * scale + shift` instead.

    Attributes:
        axis: the channels' axis of the value.
        channels: their number.
        nodes: the nodes that are written again.
        write: with float64 [channels] scale and shift, the new value; None when the constants do
            not fit their type or the operator has no shift.
    """

    axis: int
    channels: int
    nodes: tuple[ir.Node, ...]
    write: Callable[[Editor, Float64, Float64, ir.Node, Sequence[ir.Node]], ir.Value | None]


def sink_of(value: ir.Value) -> Sink | None:
    """The operator behind the value, if it can absorb an affine function per channel."""
    node = value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type in _NORMALISATIONS:
        return _normalisation(node)
    tokens = matrix_of(node)
    return _tokens(tokens) if tokens is not None else _linear(node)


def _linear(node: ir.Node) -> Sink | None:
    linear = linear_of(node)
    if linear is None:
        return None

    def write(
        editor: Editor, scale: Float64, shift: Float64, before: ir.Node, sources: Sequence[ir.Node]
    ) -> ir.Value | None:
        scaled = bool((scale != 1.0).any())
        return rewrite_linear(
            editor,
            linear,
            data=data_input(node),
            weight=linear.grouped_weight() * linear.per_output(scale) if scaled else None,
            bias=linear.bias * scale + shift,
            before=before,
            sources=list(sources),
        )

    return Sink(1, linear.outputs, (node,), write)


@dataclass(frozen=True)
class Matrix:
    """MatMul(data, weight [K, N]) + bias [N], as one or two nodes."""

    data: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    nodes: tuple[ir.Node, ...]

    @property
    def outputs(self) -> int:
        return (static_shape(self.weight) or (0, 0))[1]


def matrix_of(node: ir.Node | None) -> Matrix | None:
    """The product by a constant matrix that ends at the node, with the bias that it alone reads."""
    if node is None or node.domain != "":
        return None
    if node.op_type == "MatMul":
        shape = static_shape(node.inputs[1])
        if not is_float_constant(node.inputs[1]) or shape is None or len(shape) != 2:
            return None
        if len(static_shape(data_input(node)) or ()) < 2:
            return None
        return Matrix(data_input(node), data_input(node, 1), None, (node,))
    if node.op_type != "Add":
        return None
    product = matrix_of(producer_of(node.inputs[0], "MatMul"))
    bias = static_shape(node.inputs[1])
    if product is None or bias is None or not is_float_constant(node.inputs[1]):
        return None
    if sole_consumer(data_input(node)) is not node or bias not in ((product.outputs,), (1,), ()):
        return None
    return Matrix(product.data, product.weight, node.inputs[1], (*product.nodes, node))


def _tokens(matrix: Matrix) -> Sink:
    def write(
        editor: Editor, scale: Float64, shift: Float64, before: ir.Node, sources: Sequence[ir.Node]
    ) -> ir.Value | None:
        weight, old = array_of(matrix.weight), float_array(matrix.bias)
        assert weight is not None
        bias = np.broadcast_to(0.0 if old is None else old, scale.shape) * scale + shift
        constants = _typed(
            [weight.astype(np.float64) * scale if (scale != 1.0).any() else weight, bias],
            weight.dtype,
        )
        if constants is None:
            return None
        name = matrix.nodes[0].name
        operand = matrix.weight
        if constants[0] is not weight:
            operand = editor.constant(constants[0], matrix.weight.name or f"{name}_weight")
        result = editor.emit("MatMul", [matrix.data, operand], before=before, sources=sources)[0]
        if not bias.any():
            return result
        bias_name = (matrix.bias.name if matrix.bias is not None else None) or f"{name}_bias"
        addend = editor.constant(constants[1], bias_name)
        return editor.emit("Add", [result, addend], before=before, sources=sources)[0]

    rank = len(static_shape(matrix.nodes[-1].outputs[0]) or ())
    return Sink(rank - 1, matrix.outputs, matrix.nodes, write)


_NORMALISATIONS = (
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "RMSNormalization",
)


def _normalisation(node: ir.Node) -> Sink | None:
    shape = static_shape(node.outputs[0])
    old_scale, old_bias = float_array(input_at(node, 1)), float_array(input_at(node, 2))
    if shape is None or old_scale is None or (old_bias is None and input_at(node, 2) is not None):
        return None
    last = node.op_type in ("LayerNormalization", "RMSNormalization")
    axis = len(shape) - 1 if last else 1
    if old_scale.shape != (shape[axis],):
        return None

    def write(
        editor: Editor, scale: Float64, shift: Float64, before: ir.Node, sources: Sequence[ir.Node]
    ) -> ir.Value | None:
        bias = shift if old_bias is None else old_bias * scale + shift
        if node.op_type == "RMSNormalization" and bias.any():
            return None
        dtype = data_input(node, 1).dtype
        constants = _typed([old_scale * scale, bias], dtype.numpy() if dtype else np.float32)
        if constants is None:
            return None
        wanted = constants if bias.any() or old_bias is not None else constants[:1]
        operands = [
            editor.constant(content, f"{node.name}_{role}")
            for content, role in zip(wanted, ("scale", "bias"), strict=False)
        ]
        attributes: dict[str, Attribute] = {
            name: attribute.value for name, attribute in node.attributes.items()
        }
        inputs = [data_input(node), *operands]
        return editor.emit(node.op_type, inputs, attributes, before=before, sources=sources)[0]

    return Sink(axis, shape[axis], (node,), write)


def _typed(arrays: Sequence[Array], dtype: np.typing.DTypeLike) -> list[Array] | None:
    """The arrays in the given type; None when a number does not fit."""
    with np.errstate(over="ignore"):
        typed = [array.astype(dtype, copy=False) for array in arrays]
    return typed if all(np.isfinite(array).all() for array in typed) else None
