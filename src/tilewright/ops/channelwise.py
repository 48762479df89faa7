"""A gain, an offset and a clamp for each channel, as a depthwise 1x1 convolution.

BatchNormalization that could not be folded, products with a vector and clamps with a vector of
bounds take this form (section 4 of the arithmetic): w = ±127, sw = |gain|/127.  The codes are made
while binding, from the float constants: they stand in no QDQ file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import numerics
from tilewright.graph import Array, DType
from tilewright.ops import product
from tilewright.ops.activation import Activation
from tilewright.ops.builder import Builder, Operand, WeightCodes, onnx_order
from tilewright.ops.conv import Conv
from tilewright.ops.elementwise import channel_layout
from tilewright.ops.pattern import Site
from tilewright.ops.reshape import Reshape


@dataclass(frozen=True)
class Gains:
    """Depthwise weights [C] and the bias in accumulator steps."""

    weights: WeightCodes
    bias: Array


def operand(builder: Builder, value: ir.Value, axis: int) -> Operand:
    """The stored tensor with ONNX axis `axis` last."""
    rank = len(builder.operand(value).permutation)
    return builder.operand(value, channel_layout(rank, axis))


def gains(gain: Array, offset: Array, x: Operand) -> Gains:
    """Codes of `gain * x + offset`, both float64 [C].

    Scales are those of ordinary weights: they are raised where the offset would leave 30 bits.
    """
    scale = numerics.weight_scales(np.abs(gain), offset, x.type.scale)
    pairs = list(zip(gain, offset, scale, strict=True))
    codes = [min(max(numerics.rne(float(g) / float(s)), -127), 127) for g, _, s in pairs]
    bias = [numerics.rne(float(b) / (x.type.scale * float(s))) for _, b, s in pairs]
    return Gains(
        WeightCodes(np.array(codes, np.int8), DType.S8, scale, 0), np.array(bias, np.int64)
    )


def ones(x: Operand) -> Gains:
    """Weights of exactly one."""
    count = x.type.shape[-1]
    weights = WeightCodes(np.ones(count, np.int8), DType.S8, np.ones(count, np.float32), 0)
    return Gains(weights, np.zeros(count, np.int64))


def append(
    builder: Builder, site: Site, x: Operand, channels: Gains, activation: Activation
) -> None:
    """The convolution of `x`, whose last stored axis is the channels', with a fused activation."""
    *lead, count = x.type.shape
    image = x
    if len(lead) != 3:
        shape = (*_three_axes(lead), count)
        image = builder.add(Reshape(shape), [x], x.type.encoding, onnx_order(4))
    epilogue = product.epilogue(
        builder, site.name, channels.weights, channels.bias.astype(np.float64), activation, x.type
    )
    op = Conv(
        groups=count,
        stride=(1, 1),
        dilation=(1, 1),
        pads=(0, 0, 0, 0),
        weight_type=channels.weights.dtype,
        weight_zero=0,
        pre_shift=epilogue.pre_shift,
        table_multiplier=epilogue.table_multiplier,
        table_shift=epilogue.table_shift,
        weight=epilogue.weight.reshape(count, 1, 1, 1),
        channels=epilogue.channels,
        table=epilogue.table,
    )
    value = activation.output
    encoding = builder.encoding(value)
    if image is x:
        builder.add(op, [x], encoding, x.permutation, value)
        return
    y = builder.add(op, [image], encoding, onnx_order(4))
    builder.add(Reshape(x.type.shape), [y], encoding, x.permutation, value)


def _three_axes(lead: list[int]) -> tuple[int, ...]:
    if len(lead) < 3:
        return (1,) * (3 - len(lead)) + tuple(lead)
    return (int(np.prod(lead[:-2], dtype=np.int64)), *lead[-2:])
