"""What convolutions and matrix products share: the accumulator's proof and the epilogue.

    acc = sum over k of (x[k] - zx) * (w[k] - zw) + bias        y = sat(R24(acc; sx*sw/sy) + zy)

(section 4 of the arithmetic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType, attribute, constant
from tilewright.numerics import Table16
from tilewright.ops.activation import Activation, clamp_codes
from tilewright.ops.builder import Builder, WeightCodes
from tilewright.ops.functions import tabulate16
from tilewright.ops.pattern import Site
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile
from tilewright.program.isa import ChannelRecord

S16_RANGE = DType.S16.range
CHANNEL_DTYPE = ChannelRecord.numpy_dtype()
"""NumPy form of `isa.ChannelRecord`."""


def channel_records(bias: Array, m: Array, shift: Array, lo: Array, hi: Array) -> Array:
    """[C] ChannelRecords from int64 arrays [C]."""
    records = np.zeros(len(bias), CHANNEL_DTYPE)
    records["bias_low"] = np.asarray(bias, np.int64) & 0xFFFFFFFF
    records["bias_high"] = np.asarray(bias, np.int64) >> 32
    records["multiplier"], records["shift"] = m, shift
    records["lo"], records["hi"] = lo, hi
    return records


def record_bias(records: Array) -> numerics.IntArray:
    """The 48-bit biases of ChannelRecords, int64 [C]."""
    high = records["bias_high"].astype(np.int64) << 32
    return np.asarray(high | records["bias_low"].astype(np.int64), np.int64)


@dataclass(frozen=True, eq=False)
class Product(NpuOperator):
    """Base of the products: constant weights, output channels last in what they make."""

    weight_type: int = attribute("DType of the weights")
    weight_zero: int = attribute("zero point of the weights")
    pre_shift: int = attribute("pre-shift of R24")
    table_multiplier: int = attribute("multiplier of the table's R24")
    table_shift: int = attribute("shift of the table's R24")
    weight: Array = constant("codes", axes=("out_channels", "terms"))
    channels: Array = constant("bias, R24 and clamp of each channel", axes=("out_channels",))
    table: Array | None = constant("activation over s16", axes=("513",), optional=True)

    def prove(self, x: TensorType, where: str) -> None:
        """The accumulator's bound, from the weights as they are.

        Raises:
            QuantizationError: it cannot be proven.
        """
        bias, dtype = record_bias(self.channels), DType(self.weight_type)
        prove_bound(self.weight, self.weight_zero, bias, x, dtype, where)

    def centred_weight(self) -> Array:
        """Weights less their zero point, int64."""
        return self.weight.astype(np.int64) - self.weight_zero

    def finish(self, acc: Array, output: TensorType) -> Array:
        """Sums of products [..., channels] to codes: bias, R24, table or clamp."""
        acc = acc + record_bias(self.channels)
        r = numerics.r24(acc, self.channels["multiplier"], self.channels["shift"], self.pre_shift)
        if self.table is None:
            y = numerics.saturate(r + output.zero_point, self.channels["lo"], self.channels["hi"])
            return y.astype(output.dtype.numpy)
        table = Table16(self.table.astype(np.int64), self.table_multiplier, self.table_shift)
        v = numerics.interpolate16(numerics.saturate(r, *S16_RANGE), table)
        return numerics.saturate(v + output.zero_point, *output.dtype.range).astype(
            output.dtype.numpy
        )

    def constant_rows(self, name: str, region: Region) -> Span:
        return Span(0, 513) if name == "table" else region[-1]

    def tile_fields(self, tile: Tile) -> dict[str, Any]:
        """Fields of an isa.MatrixTile that do not depend on geometry."""
        x, y = tile.inputs[0].type, tile.output.type
        return {
            "weights": tile.constants["weight"],
            "channels": tile.constants["channels"],
            "table": tile.constants.get("table", 0),
            "input_type": x.dtype,
            "weight_type": self.weight_type,
            "output_type": y.dtype,
            "pre_shift": self.pre_shift,
            "input_zero": x.zero_point,
            "weight_zero": self.weight_zero,
            "output_zero": y.zero_point,
            "table_shift": self.table_shift,
            "table_multiplier": self.table_multiplier,
        }


@dataclass(frozen=True)
class Epilogue:
    """Constants and attributes of a bound product."""

    channels: Array
    pre_shift: int
    table: Array | None
    table_multiplier: int
    table_shift: int


def bind_epilogue(
    builder: Builder, site: Site, weights: WeightCodes, activation: Activation, x: TensorType
) -> Epilogue:
    """Fix bias, rescale, clamp and table of a product, and prove its accumulator.

    Raises:
        QuantizationError: the bound of section 4 does not hold, or a ratio is out of range.
    """
    bias = _bias_codes(builder, site, weights, x)
    return epilogue(builder, site.name, weights, bias, activation, x)


def epilogue(
    builder: Builder,
    where: str,
    weights: WeightCodes,
    bias: Array,
    activation: Activation,
    x: TensorType,
) -> Epilogue:
    """As `bind_epilogue`, of a bias [C] that is given in accumulator steps."""
    output = builder.encoding(activation.output)
    target = builder.encoding(activation.inner) if activation.inner is not None else output
    bound = prove_bound(weights.codes, weights.zero_point, bias, x, weights.dtype, where)
    wide = x.dtype is DType.S16 or weights.dtype is DType.S16
    pre_shift = numerics.pre_shift_for(bound) if wide else 0
    products = np.float64(x.scale) * weights.scale.astype(np.float64)
    ratios = products / target.scale * 2.0**pre_shift
    m, shift = numerics.multipliers(ratios, where)
    table, table_m, table_shift = None, 0, 0
    if activation.unary is not None:
        lo, hi = S16_RANGE
        found = tabulate16(activation.unary, target.scale, output, where)
        table, table_m, table_shift = found.entries.astype(np.int16), found.m, found.shift
        channels = channel_records(bias, m, shift, np.full(len(bias), lo), np.full(len(bias), hi))
    else:
        low, high = clamp_codes(activation.low, activation.high, output, len(bias))
        channels = channel_records(bias, m, shift, low, high)
    return Epilogue(channels, pre_shift, table, table_m, table_shift)


def _bias_codes(builder: Builder, site: Site, weights: WeightCodes, x: TensorType) -> Array:
    """`rne(b / (sx*sw))`, or an imported int32 bias as it is where its scale agrees (section 4)."""
    assert site.weights is not None
    value = site.weights.bias
    count = len(weights.codes)
    if value is None:
        return np.zeros(count, np.int64)
    imported = builder.float_graph.constants.get(value.name or "")
    products = np.float64(x.scale) * weights.scale.astype(np.float64)
    if imported is not None:
        own = np.broadcast_to(imported.scale.astype(np.float64), count)
        codes = imported.codes.astype(np.int64).reshape(-1) - imported.zero_point.reshape(-1)
        if np.all(np.abs(own - products) <= products * 2.0**-20):
            return np.asarray(codes, np.int64)
        real = codes * own
    else:
        array = builder.float_graph.constant(value)
        assert array is not None
        real = np.broadcast_to(array.reshape(-1).astype(np.float64), count)
    return numerics.rounded(real / products)


def prove_bound(
    weights: Array, weight_zero: int, bias: Array, x: TensorType, weight_dtype: DType, where: str
) -> int:
    """Largest possible |accumulator| over all channels, proven from the actual weights.

    Args:
        weights: codes [C, ...].
        bias: [C] int64.

    Raises:
        QuantizationError: it may leave 32 bits (8-bit operands) or 48 bits (a 16-bit operand).
    """
    flat = np.abs(weights.reshape(len(weights), -1).astype(np.int64) - weight_zero)
    bounds = flat.sum(axis=1) * x.reach + np.abs(bias.astype(np.int64))
    bound = int(bounds.max(initial=0))
    wide = x.dtype is DType.S16 or weight_dtype is DType.S16
    limit = 2**47 if wide else 2**31
    if bound >= limit:
        channel = int(bounds.argmax())
        raise QuantizationError(
            f"{where}: the accumulator of output channel {channel} can reach {bound}, "
            f"the limit is {limit}",
            fix="raise the scale of its weights or keep the layer in float",
            code="TW-3114",
        )
    return bound
