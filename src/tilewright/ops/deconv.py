"""Transposed convolution: 1-D and 2-D, grouped, dilated, any stride, padding and output padding.

acc[n,r,c,o] = bias[o] + sum (x[n,i,j,k] - zx) * (w[o,u,v,k] - zw)
               over i*sr + u*dr == r + pt,  j*sc + v*dc == c + pl
y = sat(R24(acc; sx*sw[o]/sy) + zy), or through a table behind an s16 pre-activation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute, constant
from tilewright.ops import elementwise, product
from tilewright.ops.activation import Activation, absorb
from tilewright.ops.builder import Builder, WeightCodes, channels_last, onnx_order
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
from tilewright.program.isa import Deconvolve, Instruction

ONNX = ("ConvTranspose",)
KINDS = ("ConvTranspose",)
TYPES = "u8, s8, s16; weights u8, s8, s16"
LIMITS = "1-D and 2-D, constant weights; any groups, stride, dilation and padding"


@dataclass(frozen=True, eq=False)
class ConvTranspose(product.Product):
    """2-D transposed convolution of an NHWC tensor."""

    CODE = 5
    groups: int = attribute("channel groups")
    stride: tuple[int, ...] = attribute("row and column stride", count=2)
    dilation: tuple[int, ...] = attribute("row and column dilation", count=2)
    pads: tuple[int, ...] = attribute("rows and columns cut: top, left, bottom, right", count=4)
    output_padding: tuple[int, ...] = attribute("rows and columns added at the end", count=2)
    weight: Array = constant(
        "codes", axes=("out_channels", "rows", "columns", "in_channels/groups")
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        """The bound takes every tap, a little more than any output sums."""
        (x,) = inputs
        elementwise.require_activations(inputs, where)
        n, h, w, c = x.shape
        out, _, _, width = self.weight.shape
        if c != width * self.groups or out % self.groups:
            raise QuantizationError(
                f"{where}: {c} input channels do not fit weights {self.weight.shape}"
            )
        self.prove(x, where)
        return ((n, self._output_size(0, h), self._output_size(1, w), out),)

    def _output_size(self, axis: int, size: int) -> int:
        cut = self.pads[axis] + self.pads[axis + 2]
        return self._full_size(axis, size) + self.output_padding[axis] - cut

    def _full_size(self, axis: int, size: int) -> int:
        """Output rows (axis 0) or columns (1) that any input reaches, before cutting."""
        taps = int(self.weight.shape[axis + 1])
        return (size - 1) * self.stride[axis] + (taps - 1) * self.dilation[axis] + 1

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        n, h, w, _ = x.shape
        centred = x.astype(np.int64) - xt.zero_point
        weight = self.centred_weight()
        channels, kh, kw, width = weight.shape
        per_group = channels // self.groups
        rows, columns = (
            self._full_size(a, s) + self.output_padding[a] for a, s in ((0, h), (1, w))
        )
        full = np.zeros((n, rows, columns, channels), np.int64)
        (sr, sc), (dr, dc) = self.stride, self.dilation
        for u in range(kh):
            for v in range(kw):
                reached = full[
                    :,
                    u * dr : u * dr + (h - 1) * sr + 1 : sr,
                    v * dc : v * dc + (w - 1) * sc + 1 : sc,
                ]
                for g in range(self.groups):
                    o = slice(g * per_group, (g + 1) * per_group)
                    reached[..., o] += centred[..., g * width : (g + 1) * width] @ weight[o, u, v].T
        top, left = self.pads[:2]
        acc = full[:, top : top + yt.shape[1], left : left + yt.shape[2]]
        return [self.finish(acc, yt)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        (x,) = inputs
        images, rows, columns, channels = region
        return (
            (
                images,
                self._reaching(0, rows, x.shape[1]),
                self._reaching(1, columns, x.shape[2]),
                self._input_channels(channels),
            ),
        )

    def _reaching(self, axis: int, rows: Span, size: int) -> Span:
        """Input rows with a tap in output rows `rows`; at least one row.

        Rows between the first and the last are taken whole, though a stride above the kernel's
        extent may leave some of them without a tap.
        """
        stride, pad = self.stride[axis], self.pads[axis]
        extent = (self.weight.shape[axis + 1] - 1) * self.dilation[axis]
        first = -(-(rows.start + pad - extent) // stride)
        last = (rows.stop - 1 + pad) // stride
        start = min(max(first, 0), size - 1)
        return Span(start, max(min(last + 1, size), start + 1))

    def _input_channels(self, channels: Span) -> Span:
        """Input channels of the groups that `channels` touches."""
        out, _, _, width = self.weight.shape
        per_group = out // self.groups
        return Span(channels.start // per_group * width, -(-channels.stop // per_group) * width)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        step = 1 if self.groups == 1 else len(self.weight) // self.groups
        return (Split(1), Split(3, step), Split(0), Split(2))

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        """Each output sums about kernel/stride taps an axis, counted rounded up."""
        _, kh, kw, width = self.weight.shape
        taps = -(-kh // self.stride[0]) * -(-kw // self.stride[1])
        return Work(macs=region_elements(region) * taps * width)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        xt, yt = view.type, tile.output.type
        images, rows, columns, channels = tile.region
        (need,) = self.needs(tile.region, [xt], yt)
        _, kh, kw, _ = self.weight.shape
        per_group = len(self.weight) // self.groups
        return [
            Deconvolve(
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
                    self.pads[0] + rows.start - need[1].start * self.stride[0],
                    self.pads[1] + columns.start - need[2].start * self.stride[1],
                ),
                **self.tile_fields(tile),
            )
            for n in range(images.start, images.stop)
        ]


OPERATORS = (ConvTranspose,)


@dataclass(frozen=True)
class ConvTransposePattern:
    """Shape-level transposed convolution; attributes as in ONNX, rank 3 or 4."""

    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output_padding: tuple[int, ...]
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A ConvTranspose node with constant weights and what fuses behind it."""
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
        return Refusal(f"it is a {spatial}-D transposed convolution; 1-D and 2-D are supported")
    pads = attribute_ints(node, "pads", (0,) * 2 * spatial)
    if min(pads) < 0:
        return Refusal("its padding is negative")
    activation = absorb(node.outputs[0], graph, channel_axis=1)
    pattern = ConvTransposePattern(
        attribute_int(node, "group", 1),
        attribute_ints(node, "strides", (1,) * spatial),
        attribute_ints(node, "dilations", (1,) * spatial),
        pads,
        attribute_ints(node, "output_padding", (0,) * spatial),
        activation,
    )
    inputs = int(np.prod(shape_of(x), dtype=np.int64))
    return Site(
        "ConvTranspose",
        (node, *activation.nodes),
        (x,),
        (activation.output,),
        pattern,
        weights=Weights(weight, 1, bias),
        inner=activation.inner,
        macs=inputs * int(np.prod(array.shape[1:], dtype=np.int64)),
    )


def bind(site: Site, builder: Builder) -> None:
    """ConvTranspose with its scales; a 1-D one is of images with one row."""
    pattern: ConvTransposePattern = site.pattern
    rank = len(pattern.strides) + 2
    x = builder.operand(site.inputs[0], channels_last(rank))
    weights = output_channels_first(builder.weights(site), pattern.groups)
    pads = pattern.pads
    if rank == 3:
        n, length, c = x.type.shape
        x = builder.add(Reshape((n, 1, length, c)), [x], x.type.encoding, onnx_order(4))
        pads = (0, pads[0], 0, pads[1])
    epilogue = product.bind_epilogue(builder, site, weights, pattern.activation, x.type)
    op = ConvTranspose(
        groups=pattern.groups,
        stride=(1, *pattern.strides)[-2:],
        dilation=(1, *pattern.dilations)[-2:],
        pads=pads,
        output_padding=(0, *pattern.output_padding)[-2:],
        weight_type=weights.dtype,
        weight_zero=weights.zero_point,
        pre_shift=epilogue.pre_shift,
        table_multiplier=epilogue.table_multiplier,
        table_shift=epilogue.table_shift,
        weight=epilogue.weight,
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


def output_channels_first(weights: WeightCodes, groups: int) -> WeightCodes:
    """Codes [out, kh, kw, in/groups] from ONNX's, whose second axis came first.

    Args:
        weights: codes [out/groups, in, kh, kw] or [out/groups, in, kw]; a scale holds for the
            channels of the same place in all groups.
    """
    codes = weights.codes if weights.codes.ndim == 4 else weights.codes[:, :, None]
    per_group, inputs, kh, kw = codes.shape
    split = codes.reshape(per_group, groups, inputs // groups, kh, kw)
    moved = split.transpose(1, 0, 3, 4, 2).reshape(-1, kh, kw, inputs // groups)
    scale = np.tile(weights.scale, groups)
    return WeightCodes(np.ascontiguousarray(moved), weights.dtype, scale, weights.zero_point)
