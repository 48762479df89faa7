"""What convolutions and matrix products share: the sum's constants and the epilogue.

    acc = sum over k of (x[k] - zx) * (w[k] - zw) + bias        y = sat(R24(acc; sx*sw/sy) + zy)

(section 4 of the arithmetic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import numerics
from tilewright.graph import Array, DType, TensorType, attribute, constant
from tilewright.numerics import Table16
from tilewright.ops import accumulator
from tilewright.ops.accumulator import FloatArray
from tilewright.ops.activation import Activation, clamp_codes
from tilewright.ops.builder import Builder, WeightCodes
from tilewright.ops.functions import tabulate16
from tilewright.ops.pattern import QuantizedConstant, Site
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile
from tilewright.program.isa import ChannelRecord

S16_RANGE, S32_ENDS = DType.S16.range, DType.S32.range
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
        accumulator.prove_bound(self.weight, self.weight_zero, bias, x, dtype, where)

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
    """Constants and attributes of a bound product; `weight` holds codes as they were laid out."""

    weight: Array
    channels: Array
    pre_shift: int
    table: Array | None
    table_multiplier: int
    table_shift: int


def bind_epilogue(
    builder: Builder, site: Site, weights: WeightCodes, activation: Activation, x: TensorType
) -> Epilogue:
    """Fix weights, bias, rescale, clamp and table of a product, and prove its accumulator.

    Raises:
        QuantizationError: the bound of section 4 does not hold, or a ratio is out of range.
    """
    bias = _bias_steps(builder, site, weights, x)
    return epilogue(builder, site.name, weights, bias, activation, x)


def epilogue(
    builder: Builder,
    where: str,
    weights: WeightCodes,
    bias: FloatArray,
    activation: Activation,
    x: TensorType,
) -> Epilogue:
    """As `bind_epilogue`, of a bias [C] that is given in accumulator steps."""
    output = builder.encoding(activation.output)
    target = builder.encoding(activation.inner) if activation.inner is not None else output
    terms = accumulator.provable(weights, bias, x, where)
    _note_raised(builder, where, terms.exponents)
    wide = x.dtype is DType.S16 or weights.dtype is DType.S16
    pre_shift = numerics.pre_shift_for(terms.bound) if wide else 0
    products = np.float64(x.scale) * terms.weights.scale.astype(np.float64)
    ratios = products / target.scale * 2.0**pre_shift
    m, shift = numerics.multipliers(ratios, where)
    table, table_m, table_shift = None, 0, 0
    count = len(terms.bias)
    if activation.unary is not None:
        lo, hi = (np.full(count, v) for v in S16_RANGE)
        found = tabulate16(activation.unary, target.scale, output, where)
        table, table_m, table_shift = found.entries.astype(np.int16), found.m, found.shift
    else:
        lo, hi = clamp_codes(activation.low, activation.high, output, count)
    channels = channel_records(terms.bias, m, shift, lo, hi)
    return Epilogue(terms.weights.codes, channels, pre_shift, table, table_m, table_shift)


def _bias_steps(builder: Builder, site: Site, weights: WeightCodes, x: TensorType) -> FloatArray:
    """`b / (sx*sw)`, or an imported int32 bias as it is where its scale agrees (section 4)."""
    assert site.weights is not None
    value = site.weights.bias
    count = len(weights.codes)
    if value is None:
        return np.zeros(count)
    imported = builder.float_graph.constants.get(value.name or "")
    products = np.float64(x.scale) * weights.scale.astype(np.float64)
    if imported is not None:
        own = np.broadcast_to(imported.scale.astype(np.float64), count)
        _note_clipped(builder, site.name, imported)
        codes = imported.codes.astype(np.int64).reshape(-1) - imported.zero_point.reshape(-1)
        if np.all(np.abs(own - products) <= products * 2.0**-20):
            return np.broadcast_to(codes.astype(np.float64), count)
        real = codes * own
    else:
        array = builder.float_graph.constant(value)
        assert array is not None
        real = np.broadcast_to(array.reshape(-1).astype(np.float64), count)
    return np.asarray(real / products, np.float64)


def _note_raised(builder: Builder, where: str, exponents: numerics.IntArray) -> None:
    raised = int(np.count_nonzero(exponents))
    if raised:
        builder.note(
            "raised-weight-scales",
            f"{where}: the weight scales of {raised} of {len(exponents)} output channels were "
            f"raised by factors of at most {2 ** int(exponents.max())}, so that their accumulators "
            "stay in range",
        )


def _note_clipped(builder: Builder, where: str, bias: QuantizedConstant) -> None:
    if bias.dtype is not DType.S32:
        return
    clipped = int(np.isin(bias.codes, S32_ENDS).sum())
    if clipped:
        builder.note(
            "clipped-biases",
            f"{where}: the biases of {clipped} of {bias.codes.size} output channels stand at the "
            "end of 32 bits in the quantized model; the tool that wrote it has probably clipped "
            "them",
        )
