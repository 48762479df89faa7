"""Constant: a tensor of fixed codes, where an operator reads an initializer like a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, Encoding, TensorType, constant
from tilewright.ops import elementwise
from tilewright.ops.builder import Builder, Operand, Permutation, onnx_order
from tilewright.ops.copying import Strided, copies
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile, region_shape
from tilewright.program.isa import Instruction


@dataclass(frozen=True, eq=False)
class Constant(NpuOperator):
    """No input; the output is the stored codes."""

    CODE = 14
    data: Array = constant("codes of the output's type", axes=("stored axes of the output",))

    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        if self.data.ndim == 0:
            raise QuantizationError(f"{where}: a constant operand has no axes")
        return (self.data.shape,)

    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        return [self.data.astype(out[0].dtype.numpy)]

    def needs(
        self, region: Region, inputs: Sequence[TensorType], output: TensorType
    ) -> tuple[Region, ...]:
        return ()

    def constant_rows(self, name: str, region: Region) -> Span:
        return region[0]

    def emit(self, tile: Tile) -> list[Instruction]:
        own = elementwise.word_strides(self.data)
        inner = (s * span.start for s, span in zip(own[1:], tile.region[1:], strict=True))
        out = tile.output
        return copies(
            region_shape(tile.region),
            Strided(tile.constants["data"] + sum(inner), own, out.type),
            Strided(out.origin(tile.region), out.strides, out.type),
        )


def symmetric(builder: Builder, stored: Array, dtype: DType, permutation: Permutation) -> Operand:
    """Floats, already in stored order, as an operand of a symmetric type."""
    hi = dtype.range.hi
    scale = numerics.symmetric_scale(float(np.abs(stored).max()), hi if hi > 255 else 127)
    return encoded(builder, stored, Encoding(dtype, scale, 0), permutation)


def encoded(
    builder: Builder, stored: Array, encoding: Encoding, permutation: Permutation
) -> Operand:
    """Floats, already in stored order, as an operand of the given encoding."""
    lo, hi = encoding.dtype.range
    codes = [
        numerics.constant_code(float(v), encoding.scale, encoding.zero_point, lo, hi)
        for v in stored.reshape(-1)
    ]
    data = np.array(codes, encoding.dtype.numpy).reshape(stored.shape)
    return builder.add(Constant(data), [], encoding, permutation)


def operand(builder: Builder, value: ir.Value, encoding: Encoding) -> Operand:
    """An initializer as a stored tensor in ONNX order."""
    array = builder.float_graph.constant(value)
    assert array is not None, f"{value.name} is not constant"
    return encoded(builder, array, encoding, onnx_order(array.ndim))
