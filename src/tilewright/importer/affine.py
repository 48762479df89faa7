"""Per-channel affine functions y = x * scale + shift in Mul, Add and BatchNormalization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.graphs import (
    data_input,
    float_array,
    float_attribute,
    input_at,
    static_shape,
)

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """y = x * scale + shift along axis 1 of x; both float64 of shape [channels]."""

    node: ir.Node
    data: ir.Value
    scale: Float64
    shift: Float64


def affine_of(node: ir.Node | None) -> Affine | None:
    """The per-channel function (axis 1) that the node computes with constant operands, or None.

    BatchNormalization: scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale.
    """
    if node is None or node.domain != "":
        return None
    if node.op_type == "BatchNormalization":
        return _of_batch_normalization(node)
    if node.op_type in ("Add", "Mul"):
        return _of_binary(node)
    return None


def _of_batch_normalization(node: ir.Node) -> Affine | None:
    gamma, beta, mean, variance = (float_array(input_at(node, index)) for index in range(1, 5))
    if gamma is None or beta is None or mean is None or variance is None:
        return None
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + float_attribute(node, "epsilon", 1e-5))
        shift = beta - mean * scale
    return Affine(node, data_input(node), scale, shift) if _finite(scale, shift) else None


def _of_binary(node: ir.Node) -> Affine | None:
    data, operand = data_input(node, 0), float_array(node.inputs[1])
    shape = static_shape(data)
    if operand is None or shape is None or len(shape) < 2 or shape != static_shape(node.outputs[0]):
        return None
    channels = per_channel(operand, shape)
    if channels is None:
        return None
    if node.op_type == "Mul":
        return Affine(node, data, channels, np.zeros_like(channels))
    return Affine(node, data, np.ones_like(channels), channels)


def per_channel(operand: Float64, shape: tuple[int, ...]) -> Float64 | None:
    """The operand as [channels] when, broadcast against `shape`, it varies along axis 1 only."""
    if operand.ndim > len(shape):
        return None
    dims = (1,) * (len(shape) - operand.ndim) + operand.shape
    if any(dim != 1 for axis, dim in enumerate(dims) if axis != 1):
        return None
    return np.array(np.broadcast_to(operand.reshape(-1), (shape[1],)))


def elementwise_of(node: ir.Node) -> tuple[ir.Value, Float64, Float64] | None:
    """data, scale, shift where the node computes data * scale + shift; both broadcast to data."""
    if node.domain != "" or node.op_type not in ("Add", "Mul", "BatchNormalization"):
        return None
    data = node.inputs[0]
    shape = static_shape(data)
    if data is None or shape is None or shape != static_shape(node.outputs[0]):
        return None
    if node.op_type == "BatchNormalization":
        affine = _of_batch_normalization(node)
        if affine is None:
            return None
        column = (-1, *(1,) * (len(shape) - 2))
        return data, affine.scale.reshape(column), affine.shift.reshape(column)
    constant = float_array(node.inputs[1])
    if constant is None:
        return None
    if node.op_type == "Add":
        return data, np.ones(()), constant
    return data, constant, np.zeros(())


def along_axis(operand: Float64, shape: tuple[int, ...], axis: int) -> Float64 | None:
    """The operand as [shape[axis]] when, broadcast to `shape`, it varies along that axis only."""
    dims = (1,) * (len(shape) - operand.ndim) + operand.shape
    if len(dims) > len(shape) or any(dim != 1 for k, dim in enumerate(dims) if k != axis):
        return None
    return np.array(np.broadcast_to(operand.reshape(-1), (shape[axis],)))


def _finite(*arrays: Float64) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)
