"""DepthToSpace and SpaceToDepth: blocks of pixels to channels and back, as one strided copy.

DepthToSpace, DCR: y[h*b + u, w*b + v, c] = x[h, w, (u*b + v)*C + c]
DepthToSpace, CRD: y[h*b + u, w*b + v, c] = x[h, w, (c*b + u)*b + v]
SpaceToDepth:      y[h, w, (u*b + v)*C + c] = x[h*b + u, w*b + v, c]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Array, TensorType, attribute
from tilewright.ops.builder import Builder, channels_last
from tilewright.ops.copying import (
    Movement,
    Strided,
    copies,
    rescale_between,
    rescaled,
)
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_int,
    attribute_string,
    shape_of,
)
from tilewright.ops.protocol import NpuOperator, Region, Span, Split, Tile
from tilewright.program.isa import Instruction

ONNX = ("DepthToSpace", "SpaceToDepth")
KINDS = ("DepthToSpace", "SpaceToDepth")
TYPES = "u8, s8, s16"
LIMITS = "any block size, DCR and CRD"


@dataclass(frozen=True, eq=False)
class DepthToSpace(Movement):
    """Channels of an NHWC tensor spread over blocks of rows and columns."""

    CODE = 27
    block: int = attribute("rows and columns of a block")
    column_first: int = attribute("0: channels are (row, column, depth); 1: (depth, row, column)")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        n, h, w, c = inputs[0].shape
        if c % self.block**2:
            raise QuantizationError(f"{where}: {c} channels are not blocks of {self.block}")
        return ((n, h * self.block, w * self.block, c // self.block**2),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        n, h, w, c = inputs[0].shape
        b, depth = self.block, c // self.block**2
        if self.column_first:
            x = inputs[0].reshape(n, h, w, depth, b, b).transpose(0, 1, 4, 2, 5, 3)
        else:
            x = inputs[0].reshape(n, h, w, b, b, depth).transpose(0, 1, 3, 2, 4, 5)
        codes = x.reshape(out[0].shape)
        return [rescaled(codes, types[0].encoding, out[0].encoding, self.multiplier, self.shift)]

    def _channel_steps(self, depth: int) -> tuple[int, int, int]:
        """Input channels from one row of a block, column of a block, output channel to the next."""
        b = self.block
        return (b, 1, b * b) if self.column_first else (b * depth, depth, 1)

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return (Split(1, self.block), Split(0), Split(2, self.block), Split(3))

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        images, rows, columns, channels = region
        row, column, channel = self._channel_steps(output.shape[3])
        last = (row + column) * (self.block - 1) + channel * (channels.stop - 1)
        return (
            (
                images,
                _blocks(rows, self.block),
                _blocks(columns, self.block),
                Span(channel * channels.start, last + 1),
            ),
        )

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        (need,) = self.needs(tile.region, [view.type], tile.output.type)
        b = self.block
        image, row, column, channel = view.strides
        y_image, y_row, y_column, y_channel = tile.output.strides
        u, v, c = self._channel_steps(tile.output.type.shape[3])
        return copies(
            (need[0].size, need[1].size, b, need[2].size, b, tile.region[3].size),
            Strided(
                view.origin(need),
                (image, row, u * channel, column, v * channel, c * channel),
                view.type,
            ),
            Strided(
                tile.output.origin(tile.region),
                (y_image, b * y_row, y_row, b * y_column, y_column, y_channel),
                tile.output.type,
            ),
            self.multiplier,
            self.shift,
        )


def _blocks(span: Span, block: int) -> Span:
    return Span(span.start // block, -(-span.stop // block))


@dataclass(frozen=True, eq=False)
class SpaceToDepth(Movement):
    """Blocks of rows and columns of an NHWC tensor gathered into channels."""

    CODE = 28
    block: int = attribute("rows and columns of a block")

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        n, h, w, c = inputs[0].shape
        if h % self.block or w % self.block:
            raise QuantizationError(f"{where}: {h}x{w} are not blocks of {self.block}")
        return ((n, h // self.block, w // self.block, c * self.block**2),)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        (n, h, w, _), b = out[0].shape, self.block
        blocks = inputs[0].reshape(n, h, b, w, b, types[0].shape[3]).transpose(0, 1, 3, 2, 4, 5)
        codes = blocks.reshape(out[0].shape)
        return [rescaled(codes, types[0].encoding, out[0].encoding, self.multiplier, self.shift)]

    def splits(self, inputs: Sequence[TensorType], output: TensorType) -> tuple[Split, ...]:
        return (Split(1), Split(0), Split(2))

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        images, rows, columns, _ = region
        spread = (Span(s.start * self.block, s.stop * self.block) for s in (rows, columns))
        return ((images, *spread, Span(0, inputs[0].shape[3])),)

    def emit(self, tile: Tile) -> list[Instruction]:
        (view,) = tile.inputs
        (need,) = self.needs(tile.region, [view.type], tile.output.type)
        b, c = self.block, view.type.shape[3]
        images, rows, columns, _ = tile.region
        image, row, column, channel = view.strides
        y_image, y_row, y_column, y_channel = tile.output.strides
        return copies(
            (images.size, rows.size, b, columns.size, b, c),
            Strided(
                view.origin(need), (image, b * row, row, b * column, column, channel), view.type
            ),
            Strided(
                tile.output.origin(tile.region),
                (y_image, y_row, b * c * y_channel, y_column, c * y_channel, y_channel),
                tile.output.type,
            ),
            self.multiplier,
            self.shift,
        )


OPERATORS = (DepthToSpace, SpaceToDepth)


@dataclass(frozen=True)
class SpacePattern:
    """The block and, for DepthToSpace, whether channels are (depth, row, column)."""

    block: int
    column_first: bool


def match(node: ir.Node, _graph: FloatGraph) -> Site | Refusal | None:
    """Either node."""
    x = node.inputs[0]
    assert x is not None
    pattern = SpacePattern(
        attribute_int(node, "blocksize"), attribute_string(node, "mode", "DCR") == "CRD"
    )
    return Site(node.op_type, (node,), (x,), (node.outputs[0],), pattern, rule=ScaleRule.PASSED)


def bind(site: Site, builder: Builder) -> None:
    """Channels last in, channels last out."""
    pattern: SpacePattern = site.pattern
    rank = len(shape_of(site.inputs[0]))
    x, value = builder.operand(site.inputs[0], channels_last(rank)), site.outputs[0]
    encoding = builder.passed_encoding(value, x)
    rescale = rescale_between(x.type.encoding, encoding, site.name)
    op: NpuOperator = SpaceToDepth(*rescale, pattern.block)
    if site.kind == "DepthToSpace":
        op = DepthToSpace(*rescale, pattern.block, int(pattern.column_first))
    builder.add(op, [x], encoding, channels_last(rank), value)
