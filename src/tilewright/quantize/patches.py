"""The mean pre-activation of a product from the mean of what its weights meet.

A product is linear, so over all output positions

    mean(y)[o] = sum over input channel c and tap (u, v) of w[o, c, u, v] * patch[c, u, v] + bias[o]

where `patch[c, u, v]` is the mean, over output positions, of the input value under tap (u, v),
padding counting as zero.  For a tensor x [C, H, W] it is `R @ x @ Q / positions` with 0/1 matrices
R [kh, H] and Q [W, kw] that say which input row (column) a tap meets: no product is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.ops.pattern import attribute_int, attribute_ints, shape_of
from tilewright.quantize.weights import FloatArray

FloatMatrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PatchRule:
    """How the mean patch of one product's input is computed.

    Args:
        matrices: R and Q, or Q alone for one spatial axis, with 1 / positions in the last; empty:
            the mean over all axes but `axis`.
        axis: input axis of the summed channels.
    """

    matrices: tuple[FloatMatrix, ...]
    axis: int


def patch_rule(node: ir.Node, at: int) -> PatchRule:
    """For a Conv, ConvTranspose, Gemm or MatMul node of the float model.

    Args:
        at: which of its inputs is the run-time operand.
    """
    x = node.inputs[at]
    assert x is not None
    rank = len(shape_of(x))
    if node.op_type == "Gemm":
        return PatchRule((), 1)
    if node.op_type == "MatMul":
        return PatchRule((), rank - 2 if at else rank - 1)
    sizes, outputs = shape_of(x)[2:], shape_of(node.outputs[0])[2:]
    weight = node.inputs[1]
    assert weight is not None
    kernel, spatial = shape_of(weight)[2:], rank - 2
    strides = attribute_ints(node, "strides", (1,) * spatial)
    dilations = attribute_ints(node, "dilations", (1,) * spatial)
    pads = attribute_ints(node, "pads", (0,) * 2 * spatial)
    if set(kernel) == set(strides) == {1} and not any(pads) and sizes == outputs:
        return PatchRule((), 1)
    meets = _meets_transposed if node.op_type == "ConvTranspose" else _meets
    matrices = [
        meets(n, m, k, s, d, p)
        for n, m, k, s, d, p in zip(sizes, outputs, kernel, strides, dilations, pads, strict=False)
    ]
    matrices[-1] = matrices[-1].T / np.float32(np.prod(outputs))
    return PatchRule(tuple(np.ascontiguousarray(m, np.float32) for m in matrices), 1)


def _meets(
    size: int, outputs: int, kernel: int, stride: int, dilation: int, pad: int
) -> FloatMatrix:
    """[kernel, size]: how often tap u meets input position i."""
    matrix = np.zeros((kernel, size), np.float32)
    for tap in range(kernel):
        at = np.arange(outputs) * stride + tap * dilation - pad
        matrix[tap, at[(at >= 0) & (at < size)]] = 1
    return matrix


def _meets_transposed(
    size: int, outputs: int, kernel: int, stride: int, dilation: int, pad: int
) -> FloatMatrix:
    matrix = np.zeros((kernel, size), np.float32)
    for tap in range(kernel):
        to = np.arange(size) * stride + tap * dilation - pad
        matrix[tap, (to >= 0) & (to < outputs)] = 1
    return matrix


def mean_output(node: ir.Node, weight: FloatArray, patch: FloatArray) -> FloatArray:
    """Mean of a product's output without its bias, [output channels].

    Args:
        weight: real, as in the model.
        patch: [C], [C, k] or [C, kh, kw].
    """
    if node.op_type == "MatMul":
        return weight @ patch if node.inputs[0] is _matrix(node) else patch @ weight
    if node.op_type == "Gemm":
        return weight @ patch if attribute_int(node, "transB") else patch @ weight
    groups = attribute_int(node, "group", 1)
    if node.op_type == "ConvTranspose":
        inputs, per_group = weight.shape[:2]
        taps = weight.reshape(groups, inputs // groups, per_group, -1)
        met = patch.reshape(groups, inputs // groups, -1)
        return np.asarray(np.einsum("gcot,gct->go", taps, met).reshape(-1), np.float64)
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    return np.asarray(np.einsum("gok,gk->go", rows, patch.reshape(groups, -1)).reshape(-1))


def _matrix(node: ir.Node) -> ir.Value | None:
    return next((v for v in node.inputs if v is not None and v.const_value is not None), None)
