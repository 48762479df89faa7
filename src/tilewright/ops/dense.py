"""Dense: Gemm, and MatMul with one constant operand; the contracted axis is stored last.

acc[..., o] = bias[o] + sum (x[..., k] - zx) * (w[o, k] - zw)
y = sat(R24(acc; sx*sw[o]/sy) + zy), or through a table behind an s16 pre-activation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, constant
from tilewright.ops import elementwise, product
from tilewright.ops.activation import Activation, absorb
from tilewright.ops.builder import Builder, Permutation, onnx_order
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    Site,
    Weights,
    attribute_float,
    attribute_int,
    shape_of,
)
from tilewright.ops.protocol import (
    Region,
    Span,
    Tile,
    Work,
    region_elements,
    region_shape,
)
from tilewright.program.isa import Convolve, Instruction

ONNX = ("Gemm", "MatMul")
KINDS = ("Dense",)
TYPES = "u8, s8, s16; weights u8, s8, s16"
LIMITS = "one operand a constant matrix; a constant bias and an activation fuse behind it"


@dataclass(frozen=True, eq=False)
class Dense(product.Product):
    """Product of the last axis with a constant matrix."""

    CODE = 4
    weight: Array = constant("codes", axes=("out_channels", "in_channels"))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        out, width = self.weight.shape
        elementwise.require_activations(inputs, where)
        if x.shape[-1] != width:
            raise QuantizationError(
                f"{where}: {x.shape[-1]} input channels do not fit weights {self.weight.shape}"
            )
        self.prove(x, where)
        return ((*x.shape[:-1], out),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        centred = inputs[0].astype(np.int64) - types[0].zero_point
        weight = self.centred_weight()
        return [self.finish(centred @ weight.T, out[0])]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return ((*region[:-1], Span(0, inputs[0].shape[-1])),)

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        return Work(macs=region_elements(region) * self.weight.shape[1])

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        (need,) = self.needs(tile.region, [view.type], tile.output.type)
        x, y = view.origin(need), tile.output.origin(tile.region)
        strides = [view.strides[:-1], tile.output.strides[:-1]]
        instructions: list[Instruction] = []
        for box in elementwise.boxes(region_shape(tile.region[:-1]), strides, 2):
            rows_first = box.shape[0] > 1
            (rows, columns), in_strides, out_strides = (
                v if rows_first else v[::-1] for v in (box.shape, *box.strides)
            )
            instructions.append(
                Convolve(
                    input=x + box.offsets[0],
                    output=y + box.offsets[1],
                    in_rows=rows,
                    in_columns=columns,
                    in_channels=self.weight.shape[1],
                    in_strides=in_strides,
                    out_rows=rows,
                    out_columns=columns,
                    out_channels=tile.region[-1].size,
                    out_strides=out_strides,
                    groups=1,
                    kernel=(1, 1),
                    stride=(1, 1),
                    dilation=(1, 1),
                    pad=(0, 0),
                    **self.tile_fields(tile),
                )
            )
        return instructions


OPERATORS = (Dense,)


@dataclass(frozen=True)
class DensePattern:
    """Shape-level product; `layout` puts the contracted, of the output the channels' axis last."""

    layout: Permutation
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Gemm, or a MatMul with a constant operand and the bias behind it, and their activation."""
    found = _gemm(node, graph) if node.op_type == "Gemm" else _matmul(node, graph)
    if found is None or isinstance(found, Refusal):
        return found
    x, weights, layout, nodes = found
    made = nodes[-1].outputs[0]
    activation = absorb(made, graph, channel_axis=layout[-1])
    matrix = shape_of(weights.value)
    macs = int(np.prod(shape_of(made), dtype=np.int64)) * matrix[1 - weights.axis]
    return Site(
        "Dense",
        (*nodes, *activation.nodes),
        (x,),
        (activation.output,),
        DensePattern(layout, activation),
        weights=weights,
        inner=activation.inner,
        macs=macs,
    )


Product = tuple[ir.Value, Weights, Permutation, tuple[ir.Node, ...]]
"""Run-time operand, weights, layout and nodes of a product."""


def _gemm(node: ir.Node, graph: FloatGraph) -> Product | Refusal:
    x, matrix = node.inputs[0], node.inputs[1]
    assert x is not None and matrix is not None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if graph.constant(matrix) is None:
        return Refusal("its weights are computed at run time")
    if graph.constant(x) is not None:
        return Refusal("its first operand is constant")
    array = graph.constant(bias)
    if bias is not None and array is None:
        return Refusal("its bias is computed at run time")
    scale, beta = attribute_float(node, "alpha", 1.0), attribute_float(node, "beta", 1.0)
    if scale != 1 or (beta != 1 and bias is not None) or attribute_int(node, "transA"):
        return Refusal("its alpha, beta or transA has not been folded")
    if array is not None and elementwise.varying_axes(array, 2) not in ((), (1,)):
        return Refusal("its bias differs from row to row")
    axis = 0 if attribute_int(node, "transB") else 1
    return x, Weights(matrix, axis, bias), onnx_order(2), (node,)


def _matmul(node: ir.Node, graph: FloatGraph) -> Product | None:
    a, b = node.inputs
    assert a is not None and b is not None
    left, right = graph.constant(a), graph.constant(b)
    x, matrix, array = (a, b, right) if right is not None else (b, a, left)
    rank = len(shape_of(x))
    if array is None or array.ndim != 2 or (right is None and rank < 2):
        return None
    layout = onnx_order(rank)
    if right is None:
        layout = (*range(rank - 2), rank - 1, rank - 2)
    axis = 1 if right is not None else 0
    bias = _bias_behind(node.outputs[0], graph, layout[-1])
    if bias is None:
        return x, Weights(matrix, axis, None), layout, (node,)
    return x, Weights(matrix, axis, bias[1]), layout, (node, bias[0])


def _bias_behind(value: ir.Value, graph: FloatGraph, axis: int) -> tuple[ir.Node, ir.Value] | None:
    """An Add of a vector along the output channels, when `value` needs no encoding of its own."""
    add = graph.sole_consumer(value)
    if add is None or add.op_type != "Add" or not graph.hides(value):
        return None
    others = [v for v in add.inputs if v is not value]
    array = graph.constant(others[0]) if len(others) == 1 else None
    shape = shape_of(value)
    if array is None or array.size != shape[axis] or shape_of(add.outputs[0]) != shape:
        return None
    if elementwise.varying_axes(array, len(shape)) not in ((), (axis,)):
        return None
    assert others[0] is not None
    return add, others[0]


def bind(site: Site, builder: Builder) -> None:
    """Dense with its scales."""
    pattern: DensePattern = site.pattern
    x = builder.operand(site.inputs[0], pattern.layout)
    weights = builder.weights(site)
    epilogue = product.bind_epilogue(builder, site, weights, pattern.activation, x.type)
    op = Dense(
        weight_type=weights.dtype,
        weight_zero=weights.zero_point,
        pre_shift=epilogue.pre_shift,
        table_multiplier=epilogue.table_multiplier,
        table_shift=epilogue.table_shift,
        weight=np.ascontiguousarray(epilogue.weight),
        channels=epilogue.channels,
        table=epilogue.table,
    )
    value = pattern.activation.output
    builder.add(op, [x], builder.encoding(value), pattern.layout, value)
