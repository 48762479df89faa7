"""Max and average pooling, 1-D and 2-D, with dilation, ceil mode and both ways to count padding.

MaxPool:     y = sat(R24(max over the window of q - zx; sx/sy) + zy), padding never wins
AveragePool: y = sat(R24(sum over the window of (q - zx); sx/(sy*count)) + zy)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, Encoding, TensorType, attribute, constant
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.builder import Builder, Operand, channels_last, onnx_order
from tilewright.ops.conv import window
from tilewright.ops.copying import (
    movement_limits,
    rescale_between,
    rescaled,
)
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_int,
    attribute_ints,
    attribute_string,
    shape_of,
)
from tilewright.ops.protocol import (
    NpuOperator,
    Region,
    Split,
    Tile,
    Work,
    region_elements,
)
from tilewright.ops.reshape import Reshape
from tilewright.program import isa
from tilewright.program.isa import CountRecord, Instruction

ONNX = ("MaxPool", "AveragePool", "GlobalMaxPool")
KINDS = ("MaxPool", "AveragePool")
TYPES = "u8, s8, s16"
LIMITS = "1-D and 2-D; no indices output; no window that lies wholly in padding"


@dataclass(frozen=True, eq=False)
class _Pool(NpuOperator):
    """A window that slides over rows and columns of an NHWC tensor."""

    kernel: tuple[int, int] = attribute("window rows and columns", count=2)
    stride: tuple[int, int] = attribute("row and column stride", count=2)
    dilation: tuple[int, int] = attribute("row and column dilation", count=2)
    pads: tuple[int, int, int, int] = attribute(
        "top, left, bottom, right padding, as far as windows reach", count=4
    )

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        n, h, w, c = inputs[0].shape
        rows, columns = (
            (size + self.pads[i] + self.pads[i + 2] - (self.kernel[i] - 1) * self.dilation[i] - 1)
            // self.stride[i]
            + 1
            for i, size in enumerate((h, w))
        )
        return ((n, rows, columns, c),)

    def _taps(self, x: Array, fill: int, out: TensorType) -> Iterator[Array]:
        """For each place in the window, every output's element: int64 [n, rows, columns, c]."""
        top, left, bottom, right = self.pads
        padded = np.pad(
            x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill
        )
        _, rows, columns, _ = out.shape
        (sr, sc), (dr, dc) = self.stride, self.dilation
        for u in range(0, self.kernel[0] * dr, dr):
            for v in range(0, self.kernel[1] * dc, dc):
                yield padded[
                    :, u : u + (rows - 1) * sr + 1 : sr, v : v + (columns - 1) * sc + 1 : sc
                ]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        images, rows, columns, channels = region
        _, h, w, _ = inputs[0].shape
        (kh, kw), (sr, sc), (dr, dc) = self.kernel, self.stride, self.dilation
        return (
            (
                images,
                window(rows, kh, sr, dr, self.pads[0], h),
                window(columns, kw, sc, dc, self.pads[1], w),
                channels,
            ),
        )

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return (Split(1), Split(3), Split(0), Split(2))

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        taps = self.kernel[0] * self.kernel[1]
        return Work(vector_elements=region_elements(region) * taps)


@dataclass(frozen=True, eq=False)
class MaxPool(_Pool):
    """The largest code of a window."""

    CODE = 20
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        never = int(np.iinfo(xt.dtype.numpy).min) - 1
        best = np.full(yt.shape, never, np.int64)
        for tap in self._taps(x, never, yt):
            best = np.maximum(best, tap)
        codes = best.astype(xt.dtype.numpy)
        return [rescaled(codes, xt.encoding, yt.encoding, self.multiplier, self.shift)]

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        xt, yt = view.type, tile.output.type
        images, rows, columns, channels = tile.region
        (need,) = self.needs(tile.region, [xt], yt)
        same = xt.encoding == yt.encoding
        return [
            isa.MaxPool(
                input=view.at([n, need[1].start, need[2].start, need[3].start]),
                output=tile.output.at([n, rows.start, columns.start, channels.start]),
                in_rows=need[1].size,
                in_columns=need[2].size,
                channels=channels.size,
                in_strides=view.strides[1:3],
                out_rows=rows.size,
                out_columns=columns.size,
                out_strides=tile.output.strides[1:3],
                kernel=self.kernel,
                stride=self.stride,
                dilation=self.dilation,
                pad=(
                    need[1].start - (rows.start * self.stride[0] - self.pads[0]),
                    need[2].start - (columns.start * self.stride[1] - self.pads[1]),
                ),
                types=(xt.dtype, yt.dtype),
                zeros=(0, 0) if same else (xt.zero_point, yt.zero_point),
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=tuple(movement_limits(xt.encoding, yt.encoding)),
            )
            for n in range(images.start, images.stop)
        ]


@dataclass(frozen=True, eq=False)
class AveragePool(_Pool):
    """The mean of a window's elements, those outside the counted area left out."""

    CODE = 21
    counted: tuple[int, int, int, int] = attribute(
        "first row, first column, end row, end column of the input that count", count=4
    )
    clamp: tuple[int, int] = attribute("lo and hi", count=2)
    counts: Array = constant("R24 of each number of elements, ascending", axes=("counts",))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        if self.kernel[0] * self.kernel[1] * inputs[0].reach >= numerics.R24_LIMIT:
            raise QuantizationError(f"{where}: its window of {self.kernel} is too large to sum")
        return super().infer(inputs, where)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        acc = np.zeros(yt.shape, np.int64)
        for tap in self._taps(x, xt.zero_point, yt):
            acc += tap - xt.zero_point
        rows, columns = (
            counted_taps(
                yt.shape[1 + i], self.kernel[i], self.stride[i], self.dilation[i], self.pads[i],
                self.counted[i], self.counted[i + 2],
            )
            for i in range(2)
        )  # fmt: skip
        records = self.counts[
            np.searchsorted(self.counts["count"], np.multiply.outer(rows, columns))
        ]
        r = numerics.r24(acc, records["multiplier"][..., None], records["shift"][..., None])
        return [numerics.saturate(r + yt.zero_point, *self.clamp).astype(yt.dtype.numpy)]

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        xt, yt = view.type, tile.output.type
        images, rows, columns, channels = tile.region
        (need,) = self.needs(tile.region, [xt], yt)
        top, left, bottom, right = self.counted
        return [
            isa.AveragePool(
                input=view.at([n, need[1].start, need[2].start, need[3].start]),
                output=tile.output.at([n, rows.start, columns.start, channels.start]),
                counts=tile.constants["counts"],
                count_entries=len(self.counts),
                in_rows=need[1].size,
                in_columns=need[2].size,
                channels=channels.size,
                in_strides=view.strides[1:3],
                out_rows=rows.size,
                out_columns=columns.size,
                out_strides=tile.output.strides[1:3],
                kernel=self.kernel,
                stride=self.stride,
                dilation=self.dilation,
                pad=(
                    need[1].start - (rows.start * self.stride[0] - self.pads[0]),
                    need[2].start - (columns.start * self.stride[1] - self.pads[1]),
                ),
                counted=(
                    top - need[1].start, bottom - need[1].start,
                    left - need[2].start, right - need[2].start,
                ),
                types=(xt.dtype, yt.dtype),
                zeros=(xt.zero_point, yt.zero_point),
                clamp=self.clamp,
            )
            for n in range(images.start, images.stop)
        ]  # fmt: skip


OPERATORS = (MaxPool, AveragePool)


def counted_taps(
    out: int, kernel: int, stride: int, dilation: int, pad: int, first: int, end: int
) -> numerics.IntArray:
    """For each output index of one axis, how many of its taps fall on [first, end); int64 [out]."""
    taps = np.arange(out)[:, None] * stride - pad + np.arange(kernel)[None] * dilation
    return np.asarray(((taps >= first) & (taps < end)).sum(axis=1), np.int64)


@dataclass(frozen=True)
class PoolPattern:
    """Shape-level pooling over rows and columns; a 1-D pool has one row.

    Args:
        pads: of the model; top, left, bottom, right.
        out: output rows and columns.
        counted: the input area whose elements count, as in `AveragePool.counted`.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    out: tuple[int, int]
    counted: tuple[int, int, int, int]
    activation: Activation | None = None

    def axis_counts(self, axis: int) -> numerics.IntArray:
        return counted_taps(
            self.out[axis], self.kernel[axis], self.stride[axis], self.dilation[axis],
            self.pads[axis], self.counted[axis], self.counted[axis + 2],
        )  # fmt: skip

    def reach(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """`pads` with the ends that make the floor formula give `out`."""
        ends = [
            max(
                0,
                (self.out[i] - 1) * self.stride[i]
                + (self.kernel[i] - 1) * self.dilation[i]
                + 1
                - size[i]
                - self.pads[i],
            )
            for i in range(2)
        ]
        return (self.pads[0], self.pads[1], ends[0], ends[1])


def output_size(size: int, extent: int, stride: int, pads: tuple[int, int], ceil: bool) -> int:
    """onnxruntime's output length of one axis; ceil mode starts no window beyond the image."""
    room = size + sum(pads) - extent
    if not ceil:
        return room // stride + 1
    out = -(-room // stride) + 1
    return out - 1 if (out - 1) * stride >= size + pads[0] else out


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A pooling node; a Relu or Clip fuses behind an average."""
    x = node.inputs[0]
    assert x is not None
    shape = shape_of(x)
    spatial = len(shape) - 2
    if spatial not in (1, 2):
        return Refusal(f"it pools over {spatial} axes; 1 and 2 are supported")
    indices = node.outputs[1] if len(node.outputs) > 1 else None
    if indices is not None and (indices.uses() or indices.is_graph_output()):
        return Refusal("its indices output is used")
    if attribute_string(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return Refusal("its padding is automatic; explicit pads are supported")
    pattern = _pattern(node, shape)
    if min(pattern.pads) < 0:
        return Refusal("its padding is negative")
    given, stated = (*shape[:2], *pattern.out[-spatial:]), shape_of(node.outputs[0])
    if given != stated:
        return Refusal(f"its output is stated as {stated}, its attributes give {given}")
    if min(int(pattern.axis_counts(axis).min()) for axis in range(2)) == 0:
        return Refusal("one of its windows lies wholly in padding")
    if node.op_type != "AveragePool":
        return Site("MaxPool", (node,), (x,), (node.outputs[0],), pattern, rule=ScaleRule.PASSED)
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    pattern = dataclasses.replace(pattern, activation=activation)
    return Site("AveragePool", (node, *activation.nodes), (x,), (activation.output,), pattern)


def _pattern(node: ir.Node, shape: tuple[int, ...]) -> PoolPattern:
    spatial = len(shape) - 2
    whole = shape[2:] if node.op_type == "GlobalMaxPool" else ()
    kernel = attribute_ints(node, "kernel_shape", whole)
    stride = attribute_ints(node, "strides", (1,) * spatial)
    dilation = attribute_ints(node, "dilations", (1,) * spatial)
    given = attribute_ints(node, "pads", (0,) * 2 * spatial)
    size, kernel = (1, *shape[2:])[-2:], (1, *kernel)[-2:]
    stride, dilation = (1, *stride)[-2:], (1, *dilation)[-2:]
    begins, ends = (0, *given[:spatial])[-2:], (0, *given[spatial:])[-2:]
    ceil = attribute_int(node, "ceil_mode") == 1
    out = tuple(
        output_size(n, (k - 1) * d + 1, s, (b, e), ceil)
        for n, k, s, d, b, e in zip(size, kernel, stride, dilation, begins, ends, strict=True)
    )
    include = node.op_type == "AveragePool" and attribute_int(node, "count_include_pad") == 1
    counted = (
        (-begins[0], -begins[1], size[0] + ends[0], size[1] + ends[1])
        if include
        else (0, 0, size[0], size[1])
    )
    return PoolPattern(
        (kernel[0], kernel[1]), (stride[0], stride[1]), (dilation[0], dilation[1]),
        (begins[0], begins[1], ends[0], ends[1]), (out[0], out[1]), counted,
    )  # fmt: skip


def bind(site: Site, builder: Builder) -> None:
    """The pool with its scales; a 1-D pool is one of images with one row."""
    pattern: PoolPattern = site.pattern
    rank = len(shape_of(site.inputs[0]))
    x = builder.operand(site.inputs[0], channels_last(rank))
    value = site.outputs[0]
    if site.kind == "MaxPool":
        encoding = builder.passed_encoding(value, x)
    else:
        encoding = builder.encoding(value)
    if rank == 3:
        n, length, c = x.type.shape
        x = builder.add(Reshape((n, 1, length, c)), [x], x.type.encoding, onnx_order(4))
    op = _bound(site, pattern, x, encoding)
    if rank == 4:
        builder.add(op, [x], encoding, channels_last(4), value)
        return
    y = builder.add(op, [x], encoding, onnx_order(4))
    n, _, length, c = y.type.shape
    builder.add(Reshape((n, length, c)), [y], encoding, channels_last(3), value)


def _bound(site: Site, pattern: PoolPattern, x: Operand, encoding: Encoding) -> NpuOperator:
    _, h, w, _ = x.type.shape
    windows = (pattern.kernel, pattern.stride, pattern.dilation, pattern.reach((h, w)))
    if site.kind == "MaxPool":
        return MaxPool(*windows, *rescale_between(x.type.encoding, encoding, site.name))
    assert pattern.activation is not None
    counts = np.unique(np.multiply.outer(pattern.axis_counts(0), pattern.axis_counts(1)))
    ratios = [x.type.scale / (encoding.scale * int(count)) for count in counts]
    m, shift = numerics.multipliers(ratios, site.name)
    records = np.zeros(len(counts), CountRecord.numpy_dtype())
    records["count"], records["multiplier"], records["shift"] = counts, m, shift
    clamp = clamp_pair(pattern.activation, encoding)
    return AveragePool(*windows, pattern.counted, clamp, records)
