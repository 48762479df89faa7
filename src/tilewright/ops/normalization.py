"""What the normalisations share: the proof of W, the affine end and its records.

    n = d over the root of W            y = sat(((n*G + B + 2**(s-1)) >> s) + zy)

(section 12 of the arithmetic).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, Encoding, TensorType, attribute, constant
from tilewright.ops import elementwise
from tilewright.ops.activation import Activation, absorb_clamps, clamp_pair
from tilewright.ops.pattern import FloatGraph, Refusal, attribute_float
from tilewright.ops.protocol import NpuOperator, Tile, packed, strided_axes
from tilewright.program import isa

AFFINE_DTYPE = isa.AffineRecord.numpy_dtype()
"""NumPy form of `isa.AffineRecord`."""


def affine_records(gain: Array, offset: Array) -> Array:
    """[C] AffineRecords from int64 arrays [C]."""
    records = np.zeros(len(gain), AFFINE_DTYPE)
    records["gain"] = gain
    records["offset_low"] = np.asarray(offset, np.int64) & 0xFFFFFFFF
    records["offset_high"] = np.asarray(offset, np.int64) >> 32
    return records


def record_offset(records: Array) -> numerics.IntArray:
    """The offsets of AffineRecords, int64 of the same shape."""
    high = records["offset_high"].astype(np.int64) << 32
    return np.asarray(high | records["offset_low"].astype(np.int64), np.int64)


@dataclass(frozen=True, eq=False)
class Normalization(NpuOperator):
    """Base of the normalisations: elements of a group over the root of the group's W."""

    INSTRUCTION: ClassVar[type[isa.NormalizeTile]]
    BITS: ClassVar[int] = 16
    """Fractional bits of n."""

    epsilon: int = attribute("added to W")
    shift: int = attribute("shift of the affine end")
    clamp: tuple[int, int] = attribute("lo and hi", count=2)
    gains: Array = constant("gain and offset of the affine end", axes=("elements",))

    @classmethod
    def unit(cls, count: int) -> int:
        """What d of a group of `count` elements is multiplied by, so that it is an integer."""
        return count

    @abstractmethod
    def spread(self, q: Array) -> tuple[Array, Array]:
        """d and W without eps' of codes less their zero point, int64 [..., elements]."""

    def prove(self, x: TensorType, count: int, where: str) -> None:
        """W of `count` elements stays below 2**62.

        Raises:
            QuantizationError: it may not, or the operand's type has no arithmetic.
        """
        elementwise.require_activations([x], where)
        bound = self.unit(count) * count * x.reach**2
        if bound + self.epsilon >= numerics.NORM_LIMIT:
            raise QuantizationError(f"{where}: {count} values are too many to normalise at once")

    def finish(self, q: Array, records: Array, output: TensorType) -> Array:
        """Codes less their zero point, int64 [..., elements], to codes of the output.

        Args:
            records: AffineRecords, broadcast against `q`.
        """
        d, w = self.spread(q)
        n = numerics.normalized(d, w + self.epsilon, self.BITS)
        gain, offset = records["gain"].astype(np.int64), record_offset(records)
        v = (n * gain + offset + (1 << (self.shift - 1))) >> self.shift
        codes = numerics.saturate(v + output.zero_point, *self.clamp)
        return codes.astype(output.dtype.numpy)

    def instruction(
        self,
        tile: Tile,
        addresses: tuple[int, int, int],
        outer: tuple[Sequence[int], Sequence[Sequence[int]]],
        group: tuple[Sequence[int], Sequence[Sequence[int]]],
    ) -> isa.Instruction:
        """One instruction of a tile.

        Args:
            addresses: of x, y and the records.
            outer: extents of up to two axes and the strides of x, y and the records there.
            group: the same of the axes that form a group, which must fold into three.
        """
        x, y = tile.inputs[0].type, tile.output.type
        extents, strides = strided_axes(*group, 3)
        outer_strides = [packed(s, 2, 0) for s in outer[1]]
        return self.INSTRUCTION(
            x=addresses[0],
            y=addresses[1],
            gains=addresses[2],
            shape=(*packed(outer[0], 2, 1), *extents),
            x_strides=(*outer_strides[0], *strides[0]),
            y_strides=(*outer_strides[1], *strides[1]),
            gain_strides=(*outer_strides[2], *strides[2]),
            types=(x.dtype, y.dtype),
            zeros=(x.zero_point, y.zero_point),
            epsilon=self.epsilon,
            shift=self.shift,
            clamp=self.clamp,
        )


def longest(dtype: DType) -> int:
    """The most elements of a group for which W has a proof, whatever scale and zero point are."""
    room = numerics.NORM_LIMIT - numerics.NORM_EPSILON_LIMIT
    return math.isqrt(room - 1) // (DType.S16.range.hi if dtype is DType.S16 else 255)


def too_long(count: int, encoding: Encoding | None) -> Refusal | None:
    """Why a group of `count` elements is not normalised.

    Args:
        encoding: of the input; None before it is known, when 8 bits are hoped for.
    """
    dtype = DType.U8 if encoding is None else encoding.dtype
    limit = longest(dtype)
    if count <= limit:
        return None
    return Refusal(
        f"it normalises {count} values at once; at {8 * dtype.bytes} bits up to {limit} are "
        "supported"
    )


@dataclass(frozen=True)
class AffineEnd:
    """What follows a normalisation.

    Args:
        gamma, beta: float64, of one shape.
        epsilon: the real one.
    """

    gamma: Array
    beta: Array
    epsilon: float
    activation: Activation

    def transposed(self, axes: Sequence[int]) -> AffineEnd:
        """The same with the axes of gamma and beta in another order."""
        return replace(self, gamma=self.gamma.transpose(axes), beta=self.beta.transpose(axes))


def affine_end(node: ir.Node, graph: FloatGraph, shape: tuple[int, ...]) -> AffineEnd | Refusal:
    """Scale, bias (where there is one) and epsilon of a node, and the clamps behind it.

    Args:
        shape: what scale and bias broadcast to.
    """
    arrays = []
    for name, value in zip(("scale", "bias"), node.inputs[1:3], strict=False):
        array = graph.constant(value)
        if value is None:
            continue
        if array is None:
            return Refusal(f"its {name} is computed at run time")
        own = array.shape[max(0, array.ndim - len(shape)) :]
        if math.prod(own) != array.size or any(
            n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False)
        ):
            return Refusal(f"its {name} of shape {array.shape} does not fit {shape}")
        arrays.append(np.broadcast_to(array.astype(np.float64).reshape(own), shape))
    gamma, *beta = arrays
    activation = absorb_clamps(node.outputs[0], graph, channel_axis=None)
    epsilon = attribute_float(node, "epsilon", 1e-5)
    return AffineEnd(gamma, beta[0] if beta else np.zeros(shape), epsilon, activation)


def bound_fields(
    operator: type[Normalization],
    end: AffineEnd,
    x: TensorType,
    output: Encoding,
    count: int,
    where: str,
) -> dict[str, Any]:
    """Fields of a Normalization: eps', the affine end in codes, the clamp.

    Args:
        count: elements of a group.
    """
    gamma, beta = end.gamma.reshape(-1), end.beta.reshape(-1)
    affine = numerics.norm_affine(gamma, beta, output.scale, operator.BITS, where)
    return {
        "epsilon": numerics.norm_epsilon(end.epsilon, operator.unit(count), x.scale),
        "shift": affine.shift,
        "clamp": clamp_pair(end.activation, output),
        "gains": affine_records(affine.gain, affine.offset),
    }
