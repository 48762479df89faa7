"""Codes of constant operands and biases (sections 1 and 4 of the arithmetic)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding
from tilewright.ops.pattern import QuantizedConstant, Site
from tilewright.quantize.ranges import NEGLIGIBLE
from tilewright.quantize.scheme import WeightType

FloatArray = npt.NDArray[np.float64]

BIAS_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class QuantizedProduct:
    """The constants of one product.

    Args:
        weight: its codes.
        bias: s32 codes of scale `input scale * weight scale`; None without a bias.
        float_bias: the real bias [C], as it was quantized; kept float where the input has 16 bits
            (its codes would need more than 32).
        raised: channels whose weight scale was raised so that the bias fits.
    """

    weight: QuantizedConstant
    bias: QuantizedConstant | None
    float_bias: FloatArray | None
    raised: int


def quantize_product(
    site: Site, weight: FloatArray, bias: FloatArray | None, x: Encoding, kind: WeightType
) -> QuantizedProduct:
    """Quantize the weight of `site` and its bias.

    Args:
        weight: the real weight, as in the model.
        bias: [C] real.
        x: encoding of the run-time input.

    Raises:
        QuantizationError: a weight or bias is not finite.
    """
    assert site.weights is not None
    if not np.isfinite(weight).all() or (bias is not None and not np.isfinite(bias).all()):
        raise QuantizationError(
            f"{site.name}: its weight or bias holds NaN or infinite values",
            fix="export the model again from finite weights",
            code="TW-3120",
        )
    weight = _without_negligible(weight)
    bias = None if bias is None else _without_negligible(bias)
    axis = site.weights.axis
    wide = x.dtype is DType.S16
    count = weight.shape[axis]
    tops = np.abs(np.moveaxis(weight, axis, 0)).reshape(count, -1).max(axis=1)
    bound = np.zeros(count) if wide or bias is None else _largest_per_channel(bias, count)
    if kind.dtype is DType.U8:
        constant, raised = _asymmetric(weight, bound, x, kind)
    else:
        constant, raised = _symmetric(weight, tops, bound, x, kind, axis)
    codes = None if bias is None or wide else bias_codes(bias, x, constant)
    return QuantizedProduct(constant, codes, bias, raised)


def _without_negligible(values: FloatArray) -> FloatArray:
    """Zeros for the values of dead layers."""
    return np.where(np.abs(values) < NEGLIGIBLE, 0.0, values)


def _largest_per_channel(bias: FloatArray, count: int) -> FloatArray:
    """|bias| for each weight scale; a grouped ConvTranspose has one scale for several channels."""
    return np.asarray(np.abs(bias).reshape(-1, count).max(axis=0), np.float64)


def _symmetric(
    weight: FloatArray, tops: FloatArray, bias: FloatArray, x: Encoding, kind: WeightType, axis: int
) -> tuple[QuantizedConstant, int]:
    _, hi = kind.dtype.range
    scales = _shared_with_dead(numerics.weight_scales(tops, bias, x.scale, hi), tops, bias)
    raised = int(np.sum((tops > 0) & (np.abs(bias) / (float(x.scale) * 2.0**30) > tops / hi)))
    if kind.power_of_two:
        scales = np.array([numerics.power_of_two_at_least(float(s)) for s in scales], np.float32)
    if not kind.per_channel:
        scales = scales.max(keepdims=True)
    shape = [1] * weight.ndim
    shape[axis] = -1
    ratios = weight / scales.astype(np.float64).reshape(shape if scales.size > 1 else ())
    codes = np.clip(np.rint(ratios), -hi, hi).astype(kind.dtype.numpy)
    zero = np.zeros(scales.shape, np.int64)
    channel_axis = axis if kind.per_channel else None
    return QuantizedConstant(codes, kind.dtype, scales, zero, channel_axis), raised


def _shared_with_dead(
    scales: npt.NDArray[np.float32], tops: FloatArray, bias: FloatArray
) -> npt.NDArray[np.float32]:
    """Channels of zeros take a scale of the others: any would do for them, but one far from the
    others' would set a scale for the whole tensor, or an impossible multiplier."""
    dead = (tops == 0) & (bias == 0)
    if dead.any() and not dead.all():
        scales = np.where(dead, scales[~dead].max(), scales)
    return scales


def _asymmetric(
    weight: FloatArray, bias: FloatArray, x: Encoding, kind: WeightType
) -> tuple[QuantizedConstant, int]:
    lo, hi = kind.dtype.range
    low, high = min(float(weight.min()), 0.0), max(float(weight.max()), 0.0)
    scale, _ = numerics.affine_parameters(low, high, lo, hi)
    least = float(bias.max(initial=0.0)) / (float(x.scale) * 2.0**30)
    if low == high and least > 0:
        scale = least  # only the bias counts
    raised = int(least > scale)
    scale = numerics.f32(max(scale, least))
    if kind.power_of_two:
        scale = numerics.power_of_two_at_least(scale)
    zero = min(max(numerics.rne(lo - low / scale), lo), hi)
    codes = np.clip(np.rint(weight / scale) + zero, lo, hi).astype(kind.dtype.numpy)
    constant = QuantizedConstant(
        codes, kind.dtype, np.array([scale], np.float32), np.array([zero], np.int64), None
    )
    return constant, raised


def bias_codes(bias: FloatArray, x: Encoding, weight: QuantizedConstant) -> QuantizedConstant:
    """`rne(b / (sx*sw))` as s32.

    A corrected bias may have outgrown the margin that the weight scale left for it: it saturates at
    the end of s32, twice the value that fixed the scale.
    """
    per_weight = weight.scale.astype(np.float64)
    products = np.resize(float(x.scale) * per_weight, bias.size)
    products = np.maximum(products, float(np.finfo(np.float32).tiny))
    scale = products.astype(np.float32)
    codes = np.clip(np.rint(bias / products), -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32)
    return QuantizedConstant(codes, DType.S32, scale, np.zeros(bias.size, np.int64), 0)
