"""Resize of rows and columns: nearest, linear and cubic.

y[r, c] = sat(R24(sum of cy*cx*(x[iy, ix] - zx); sx/(sy*2**22)) + zy)

Each output row and column has 1, 2 or 4 taps with Q11 coefficients that add up to 2048; an axis
that keeps its extent has one tap of 2048.  Positions are exact rationals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute, constant
from tilewright.ops.builder import Builder, channels_last, onnx_order
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_float,
    attribute_int,
    attribute_ints,
    attribute_string,
    shape_of,
)
from tilewright.ops.protocol import NpuOperator, Region, Span, Split, Tile, Work, region_elements
from tilewright.ops.reshape import Reshape
from tilewright.program import isa
from tilewright.program.isa import Instruction, TapRecord

ONNX = ("Resize",)
KINDS = ("Resize",)
TYPES = "u8, s8, s16"
LIMITS = (
    "rows and columns (or the length of a 1-D signal); nearest, linear and cubic with every "
    "coordinate rule but tf_crop_and_resize; no antialiasing"
)


@dataclass(frozen=True, eq=False)
class Resize(NpuOperator):
    """Interpolation over rows and columns of an NHWC tensor."""

    CODE = 26
    taps: int = attribute("taps of each axis: 1 nearest, 2 linear, 4 cubic")
    multiplier: int = attribute("multiplier of R24")
    shift: int = attribute("shift of R24")
    rows: Array = constant("taps of each output row", axes=("rows", "taps"))
    columns: Array = constant("taps of each output column", axes=("columns", "taps"))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        (x,) = inputs
        n, h, w, c = x.shape
        for taps, size in ((self.rows, h), (self.columns, w)):
            if taps["index"].min() < 0 or taps["index"].max() >= size:
                raise QuantizationError(f"{where}: a tap leaves its input {x.shape}")
        gains = (
            int(np.abs(t["coefficient"].astype(np.int64)).sum(axis=1).max())
            for t in (self.rows, self.columns)
        )
        if math.prod(gains) * x.reach >= numerics.R24_LIMIT:
            raise QuantizationError(f"{where}: its interpolation does not fit 38 bits")
        return ((n, len(self.rows), len(self.columns), c),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (x,), (xt,), (yt,) = inputs, types, out
        centred = x.astype(np.int64) - xt.zero_point
        acc = np.zeros(yt.shape, np.int64)
        for u in range(self.taps):
            rows = centred[:, self.rows["index"][:, u]]
            cy = self.rows["coefficient"][:, u].astype(np.int64)[:, None, None]
            for v in range(self.taps):
                cx = self.columns["coefficient"][:, v].astype(np.int64)[:, None]
                acc += cy * cx * rows[:, :, self.columns["index"][:, v]]
        r = numerics.r24(acc, self.multiplier, self.shift)
        return [numerics.saturate(r + yt.zero_point, *yt.dtype.range).astype(yt.dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        images, rows, columns, channels = region
        return ((images, _reach(self.rows, rows), _reach(self.columns, columns), channels),)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return (Split(1), Split(3), Split(0), Split(2))

    def constant_rows(self, name: str, region: Region) -> Span:
        return region[1] if name == "rows" else region[2]

    def work(self, region: Region, inputs: Sequence[TensorType], output: TensorType) -> Work:
        return Work(vector_elements=region_elements(region) * self.taps**2)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        xt, yt = view.type, tile.output.type
        images, rows, columns, channels = tile.region
        (need,) = self.needs(tile.region, [xt], yt)
        return [
            isa.Resize(
                input=view.at([n, need[1].start, need[2].start, need[3].start]),
                output=tile.output.at([n, rows.start, columns.start, channels.start]),
                rows=tile.constants["rows"],
                columns=tile.constants["columns"],
                taps=self.taps,
                origin=(need[1].start, need[2].start),
                in_rows=need[1].size,
                in_columns=need[2].size,
                channels=channels.size,
                in_strides=view.strides[1:3],
                out_rows=rows.size,
                out_columns=columns.size,
                out_strides=tile.output.strides[1:3],
                types=(xt.dtype, yt.dtype),
                zeros=(xt.zero_point, yt.zero_point),
                multiplier=self.multiplier,
                shift=self.shift,
                clamp=tuple(yt.dtype.range),
            )
            for n in range(images.start, images.stop)
        ]


OPERATORS = (Resize,)


def _reach(taps: Array, span: Span) -> Span:
    index = taps["index"][span.start : span.stop]
    return Span(int(index.min()), int(index.max()) + 1)


@dataclass(frozen=True)
class Axis:
    """How one axis is resized; the scale is exact."""

    size: int
    out: int
    scale: Fraction


@dataclass(frozen=True)
class Rule:
    """ONNX's attributes of an interpolation, `mode` being nearest, linear or cubic."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: Fraction
    exclude_outside: bool

    @property
    def taps(self) -> int:
        return {"nearest": 1, "linear": 2, "cubic": 4}[self.mode]


Coordinates = Callable[[int, Axis], Fraction]
HALF = Fraction(1, 2)


def _half_pixel(i: int, axis: Axis) -> Fraction:
    return (i + HALF) / axis.scale - HALF


def _half_pixel_symmetric(i: int, axis: Axis) -> Fraction:
    adjustment = Fraction(axis.out) / (axis.scale * axis.size)
    return Fraction(axis.size, 2) * (1 - adjustment) + _half_pixel(i, axis)


def _pytorch_half_pixel(i: int, axis: Axis) -> Fraction:
    return _half_pixel(i, axis) if axis.out > 1 else Fraction(0)


def _align_corners(i: int, axis: Axis) -> Fraction:
    return Fraction(i * (axis.size - 1), axis.out - 1) if axis.out > 1 else Fraction(0)


def _asymmetric(i: int, axis: Axis) -> Fraction:
    return i / axis.scale


COORDINATES: dict[str, Coordinates] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
}
"""Input position of an output index."""

NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda p: math.ceil(p - HALF),
    "round_prefer_ceil": lambda p: math.floor(p + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}
"""Input index of a position."""


def tap_records(axis: Axis, rule: Rule) -> Array:
    """TapRecords [out, taps] of one axis."""
    records = np.zeros((axis.out, rule.taps), TapRecord.numpy_dtype())
    for i in range(axis.out):
        same = axis.size == axis.out and axis.scale == 1
        position = Fraction(i) if same else COORDINATES[rule.coordinates](i, axis)
        first, weights = _weights(position, rule)
        indices = [first + k for k in range(rule.taps)]
        if rule.exclude_outside:
            inside = [
                w if 0 <= k < axis.size else Fraction(0)
                for k, w in zip(indices, weights, strict=True)
            ]
            weights = [w / sum(inside) for w in inside]
        coefficients = numerics.resize_coefficients(np.array(weights, object))
        inner = np.clip(indices, 0, axis.size - 1)
        # A tap of weight 0 reads what the largest reads, so that a tile needs no row in vain.
        records["index"][i] = np.where(coefficients == 0, inner[coefficients.argmax()], inner)
        records["coefficient"][i] = coefficients
    return records


def _weights(position: Fraction, rule: Rule) -> tuple[int, list[Fraction]]:
    """Index of the first tap and the weights of all."""
    if rule.mode == "nearest":
        return NEAREST[rule.nearest](position), [Fraction(1)]
    left = math.floor(position)
    t = position - left
    if rule.mode == "linear":
        return left, [1 - t, t]
    return left - 1, [_cubic(d, rule.cubic_a) for d in (t + 1, t, 1 - t, 2 - t)]


def _cubic(d: Fraction, a: Fraction) -> Fraction:
    """Keys' kernel at distance `d`."""
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a


@dataclass(frozen=True)
class ResizePattern:
    """Rows and columns; a 1-D signal has one row."""

    rows: Axis
    columns: Axis
    rule: Rule


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Resize with constant operands."""
    x, _, scales, sizes = (*node.inputs, None, None, None)[:4]
    assert x is not None
    mode = attribute_string(node, "mode", "nearest")
    coordinates = attribute_string(node, "coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES:
        return Refusal(f"its coordinates are {coordinates}")
    if attribute_int(node, "antialias") and mode != "nearest":
        return Refusal("it is antialiased")
    if attribute_string(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return Refusal("it keeps the aspect ratio")
    axes = _axes(node, shape_of(x), graph.constant(scales), graph.constant(sizes))
    if axes is None:
        return Refusal("its scales or sizes are computed at run time")
    if len(axes) not in (3, 4) or any(a.size != a.out or a.scale != 1 for a in axes[:2]):
        return Refusal("it resizes other axes than rows and columns")
    for found, out in zip(axes, shape_of(node.outputs[0]), strict=True):
        if found.out != out:
            return Refusal(f"its scale {float(found.scale)} does not give its output extent {out}")
    rule = Rule(
        mode,
        coordinates,
        attribute_string(node, "nearest_mode", "round_prefer_floor"),
        Fraction(attribute_float(node, "cubic_coeff_a", -0.75)),
        mode == "cubic" and attribute_int(node, "exclude_outside") == 1,
    )
    rows = axes[2] if len(axes) == 4 else Axis(1, 1, Fraction(1))
    pattern = ResizePattern(rows, axes[-1], rule)
    scale_rule = ScaleRule.FREE if mode == "cubic" else ScaleRule.PASSED
    return Site("Resize", (node,), (x,), (node.outputs[0],), pattern, rule=scale_rule)


def _axes(
    node: ir.Node, shape: tuple[int, ...], scales: Array | None, sizes: Array | None
) -> list[Axis] | None:
    """Every axis of the input; None where neither scales nor sizes are constant."""
    order = attribute_ints(node, "axes", onnx_order(len(shape)))
    axes = [Axis(n, n, Fraction(1)) for n in shape]
    if scales is not None and scales.size:
        for axis, scale in zip(order, scales, strict=True):
            exact = Fraction(float(scale))
            axes[axis] = Axis(shape[axis], _scaled(shape[axis], scale), exact)
        return axes
    if sizes is None or not sizes.size:
        return None
    for axis, size in zip(order, sizes, strict=True):
        axes[axis] = Axis(shape[axis], int(size), Fraction(int(size), shape[axis]))
    return axes


def _scaled(size: int, scale: np.float32) -> int:
    """onnxruntime's extent: the product is taken in float32."""
    return math.floor(np.float32(size) * np.float32(scale))


def bind(site: Site, builder: Builder) -> None:
    """Resize with its scales; a 1-D signal is an image of one row."""
    pattern: ResizePattern = site.pattern
    rank = len(shape_of(site.inputs[0]))
    x, value = builder.operand(site.inputs[0], channels_last(rank)), site.outputs[0]
    passed = pattern.rule.mode != "cubic"
    encoding = builder.passed_encoding(value, x) if passed else builder.encoding(value)
    m, shift = numerics.multiplier(x.type.scale / (encoding.scale * 2.0**22), site.name)
    rows, columns = (tap_records(a, pattern.rule) for a in (pattern.rows, pattern.columns))
    op = Resize(pattern.rule.taps, m, shift, rows, columns)
    if rank == 4:
        builder.add(op, [x], encoding, channels_last(4), value)
        return
    n, length, c = x.type.shape
    x = builder.add(Reshape((n, 1, length, c)), [x], x.type.encoding, onnx_order(4))
    y = builder.add(op, [x], encoding, onnx_order(4))
    n, _, length, c = y.type.shape
    builder.add(Reshape((n, length, c)), [y], encoding, channels_last(3), value)
