"""Conv, ConvTranspose and Gemm with constant weights, seen alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor
from tilewright.importer.graphs import (
    Array,
    array_of,
    data_input,
    float_array,
    input_at,
    int_attribute,
    ints_attribute,
    is_float_constant,
)

Float64 = npt.NDArray[np.float64]

LINEAR_OPS = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True)
class Linear:
    """A linear node in canonical form with a constant floating-point weight and bias.

    Attributes:
        weight: as stored: Conv [M, C/g, k..], ConvTranspose [C, M/g, k..], Gemm [N, K].
        bias: float64 of one number per output channel, zeros when the node has none.
        group: number of channel groups; 1 for Gemm.
    """

    node: ir.Node
    weight: Array
    bias: Float64
    group: int

    @property
    def outputs(self) -> int:
        first, second = int(self.weight.shape[0]), int(self.weight.shape[1])
        return second * self.group if self.node.op_type == "ConvTranspose" else first

    def per_output(self, factor: Float64) -> Float64:
        """Factor per output channel, shaped to broadcast against the grouped weight."""
        return self._grouped(factor, output=True)

    def per_input(self, factor: Float64) -> Float64:
        return self._grouped(factor, output=False)

    def _grouped(self, factor: Float64, *, output: bool) -> Float64:
        leading = output != (self.node.op_type == "ConvTranspose")
        inner = (self.group, -1, 1) if leading else (self.group, 1, -1)
        return factor.reshape(inner + (1,) * (self.weight.ndim - 2))

    def grouped_weight(self) -> Float64:
        """The weight in float64 as [group, first/group, second, k..]."""
        shape = self.weight.shape
        return self.weight.astype(np.float64).reshape(
            (self.group, shape[0] // self.group, *shape[1:])
        )

    def pads(self) -> tuple[int, ...]:
        return ints_attribute(self.node, "pads") or ()


def linear_of(node: ir.Node | None) -> Linear | None:
    """The node as a Linear, or None when it is another operator or its weight is computed."""
    if node is None or node.domain != "" or node.op_type not in LINEAR_OPS:
        return None
    weight, bias = array_of(input_at(node, 1)), input_at(node, 2)
    if weight is None or not is_float_constant(input_at(node, 1)):
        return None
    if node.op_type == "Gemm" and not is_canonical_gemm(node):
        return None
    linear = Linear(node, weight, np.zeros(0), int_attribute(node, "group", 1))
    content = np.zeros(linear.outputs) if bias is None else float_array(bias)
    if content is None or content.shape != (linear.outputs,):
        return None
    return Linear(node, weight, content, linear.group)


def is_canonical_gemm(node: ir.Node) -> bool:
    scaled = any(
        name in node.attributes and node.attributes[name].as_float() != 1.0
        for name in ("alpha", "beta")
    )
    transposed = (int_attribute(node, "transA", 0), int_attribute(node, "transB", 0))
    return not scaled and transposed == (0, 1)


def rewrite_linear(
    editor: Editor,
    linear: Linear,
    *,
    data: ir.Value,
    weight: Float64 | None,
    bias: Float64,
    before: ir.Node,
    sources: list[ir.Node],
    pads: tuple[int, ...] | None = None,
) -> ir.Value | None:
    """Write the node again with other constants; None when they do not fit its type.

    `weight` is in the grouped shape of `Linear.grouped_weight`, or None to keep the node's own.
    """
    node = linear.node
    dtype = linear.weight.dtype
    with np.errstate(over="ignore"):
        bias_typed = bias.astype(dtype)
        typed = None if weight is None else weight.reshape(linear.weight.shape).astype(dtype)
    if not np.isfinite(bias_typed).all() or (typed is not None and not np.isfinite(typed).all()):
        return None
    old_weight, old_bias = data_input(node, 1), input_at(node, 2)
    new_weight = (
        old_weight if typed is None else editor.constant(typed, old_weight.name or "weight")
    )
    bias_name = (old_bias.name if old_bias is not None else None) or f"{node.name}_bias"
    attributes: dict[str, Attribute] = {
        name: attribute.value for name, attribute in node.attributes.items()
    }
    if pads is not None:
        attributes["pads"] = list(pads)
    return editor.emit(
        node.op_type,
        [data, new_weight, editor.constant(bias_typed, bias_name)],
        attributes,
        before=before,
        sources=sources,
    )[0]
