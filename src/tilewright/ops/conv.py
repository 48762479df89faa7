"""Convolution: 1-D and 2-D, grouped, depthwise, dilated, any stride and padding.

acc[n,r,c,o] = bias[o] + sum (x[n, r*sr + u*dr - pt, c*sc + v*dc - pl, i] - zx) * (w[o,u,v,i] - zw)
y = sat(R24(acc; sx*sw[o]/sy) + zy), or through a table behind an s16 pre-activation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute, constant
from tilewright.ops import product
from tilewright.ops.activation import Activation, absorb
from tilewright.ops.builder import Builder, channels_last, onnx_order
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    Site,
    Weights,
    attribute_int,
    attribute_ints,
    shape_of,
)
from tilewright.ops.protocol import Region, Span, Split, Tile, Work, region_elements
from tilewright.ops.reshape import Reshape
from tilewright.program.isa import Convolve, Instruction

ONNX = ("Conv",)
KINDS = ("Conv",)
TYPES = "u8, s8, s16; weights u8, s8, s16"
LIMITS = "1-D and 2-D, constant weights; any groups, stride, dilation and padding"


@dataclass(frozen=True, eq=False)
class Conv(product.Product):
    """2-D convolution of an NHWC tensor."""

    CODE = 1
    groups: int = attribute("channel groups; as many as input channels for depthwise")
    stride: tuple[int, ...] = attribute("row and column stride", count=2)
    dilation: tuple[int, ...] = attribute("row and column dilation", count=2)
    pads: tuple[int, ...] = attribute("top, left, bottom, right padding", count=4)
    weight: Array = constant(
        "codes", axes=("out_channels", "rows", "columns", "in_channels/groups")
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        n, h, w, c = x.shape
        out, kh, kw, per_group = self.weight.shape
        if c != per_group * self.groups or out % self.groups:
            raise QuantizationError(
                f"{where}: {c} input channels do not fit weights {self.weight.shape}"
            )
        top, left, bottom, right = self.pads
        rows = (h + top + bottom - (kh - 1) * self.dilation[0] - 1) // self.stride[0] + 1
        columns = (w + left + right - (kw - 1) * self.dilation[1] - 1) // self.stride[1] + 1
        self.prove(x, where)
        return ((n, rows, columns, out),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        top, left, bottom, right = self.pads
        centred = np.pad(
            x.astype(np.int64) - xt.zero_point, ((0, 0), (top, bottom), (left, right), (0, 0))
        )
        weight = self.centred_weight()
        _, rows, columns, _ = yt.shape
        acc = np.zeros(yt.shape, np.int64)
        per_group = yt.shape[3] // self.groups
        width = weight.shape[3]
        for u in range(weight.shape[1]):
            for v in range(weight.shape[2]):
                r0, c0 = u * self.dilation[0], v * self.dilation[1]
                patch = centred[
                    :,
                    r0 : r0 + (rows - 1) * self.stride[0] + 1 : self.stride[0],
                    c0 : c0 + (columns - 1) * self.stride[1] + 1 : self.stride[1],
                ]
                tap = weight[:, u, v]
                if width == 1 and per_group == 1:
                    acc += patch * tap[:, 0]
                    continue
                for g in range(self.groups):
                    o = slice(g * per_group, (g + 1) * per_group)
                    acc[..., o] += patch[..., g * width : (g + 1) * width] @ tap[o].T
        return [self.finish(acc, yt)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        (x,) = inputs
        images, rows, columns, channels = region
        _, kh, kw, _ = self.weight.shape
        return (
            (
                images,
                window(rows, kh, self.stride[0], self.dilation[0], self.pads[0], x.shape[1]),
                window(columns, kw, self.stride[1], self.dilation[1], self.pads[1], x.shape[2]),
                self._input_channels(channels),
            ),
        )

    def _input_channels(self, channels: Span) -> Span:
        """Input channels of the groups that `channels` touches."""
        out, _, _, width = self.weight.shape
        per_group = out // self.groups
        return Span(channels.start // per_group * width, -(-channels.stop // per_group) * width)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        step = 1 if self.groups == 1 else len(self.weight) // self.groups
        return (Split(1), Split(3, step), Split(0), Split(2))

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        taps = int(np.prod(self.weight.shape[1:], dtype=np.int64))
        return Work(macs=region_elements(region) * taps)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        xt, yt = view.type, tile.output.type
        images, rows, columns, channels = tile.region
        (need,) = self.needs(tile.region, [xt], yt)
        _, kh, kw, _ = self.weight.shape
        per_group = len(self.weight) // self.groups
        return [
            Convolve(
                input=view.at([n, need[1].start, need[2].start, need[3].start]),
                output=tile.output.at([n, rows.start, columns.start, channels.start]),
                in_rows=need[1].size,
                in_columns=need[2].size,
                in_channels=need[3].size,
                in_strides=view.strides[1:3],
                out_rows=rows.size,
                out_columns=columns.size,
                out_channels=channels.size,
                out_strides=tile.output.strides[1:3],
                groups=1 if self.groups == 1 else max(1, channels.size // per_group),
                kernel=(kh, kw),
                stride=self.stride,
                dilation=self.dilation,
                pad=(
                    need[1].start - (rows.start * self.stride[0] - self.pads[0]),
                    need[2].start - (columns.start * self.stride[1] - self.pads[1]),
                ),
                **self.tile_fields(tile),
            )
            for n in range(images.start, images.stop)
        ]


def window(rows: Span, kernel: int, stride: int, dilation: int, pad: int, size: int) -> Span:
    """Input rows that output rows read, cut to the image; at least one row."""
    first = rows.start * stride - pad
    last = (rows.stop - 1) * stride - pad + (kernel - 1) * dilation
    start = min(max(first, 0), size - 1)
    return Span(start, max(min(last + 1, size), start + 1))


OPERATORS = (Conv,)


@dataclass(frozen=True)
class ConvPattern:
    """Shape-level convolution; attributes as in ONNX, rank 3 or 4."""

    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Conv node with constant weights and what fuses behind it."""
    if node.op_type != "Conv":
        return None
    x, weight = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None and weight is not None
    array = graph.constant(weight)
    if array is None:
        return Refusal("its weights are computed at run time")
    if bias is not None and graph.constant(bias) is None:
        return Refusal("its bias is computed at run time")
    spatial = array.ndim - 2
    if spatial not in (1, 2):
        return Refusal(f"it is a {spatial}-D convolution; 1-D and 2-D are supported")
    pads = attribute_ints(node, "pads", (0,) * 2 * spatial)
    if min(pads) < 0:
        return Refusal("its padding is negative")
    activation = absorb(node.outputs[0], graph, channel_axis=1)
    pattern = ConvPattern(
        attribute_int(node, "group", 1),
        attribute_ints(node, "strides", (1,) * spatial),
        attribute_ints(node, "dilations", (1,) * spatial),
        pads,
        activation,
    )
    outputs = int(np.prod(shape_of(node.outputs[0]), dtype=np.int64))
    return Site(
        "Conv",
        (node, *activation.nodes),
        (x,),
        (activation.output,),
        pattern,
        weights=Weights(weight, 0, bias),
        inner=activation.inner,
        macs=outputs * int(np.prod(array.shape[1:], dtype=np.int64)),
    )


def bind(site: Site, builder: Builder) -> None:
    """Conv with its scales; a 1-D convolution is one of images with one row."""
    pattern: ConvPattern = site.pattern
    rank = len(pattern.strides) + 2
    x = builder.operand(site.inputs[0], channels_last(rank))
    weights = builder.weights(site)
    pads = pattern.pads
    if rank == 3:
        n, length, c = x.type.shape
        x = builder.add(Reshape((n, 1, length, c)), [x], x.type.encoding, onnx_order(4))
        pads = (0, pads[0], 0, pads[1])
    epilogue = product.bind_epilogue(builder, site, weights, pattern.activation, x.type)
    codes = np.moveaxis(epilogue.weight, 1, -1)
    stride, dilation = ((1, *v)[-2:] for v in (pattern.strides, pattern.dilations))
    op = Conv(
        groups=pattern.groups,
        stride=stride,
        dilation=dilation,
        pads=pads,
        weight_type=weights.dtype,
        weight_zero=weights.zero_point,
        pre_shift=epilogue.pre_shift,
        table_multiplier=epilogue.table_multiplier,
        table_shift=epilogue.table_shift,
        weight=np.ascontiguousarray(codes if rank == 4 else codes[:, None]),
        channels=epilogue.channels,
        table=epilogue.table,
    )
    value = pattern.activation.output
    encoding = builder.encoding(value)
    if rank == 4:
        builder.add(op, [x], encoding, channels_last(4), value)
        return
    y = builder.add(op, [x], encoding, onnx_order(4))
    n, _, length, c = y.type.shape
    builder.add(Reshape((n, length, c)), [y], encoding, channels_last(3), value)
