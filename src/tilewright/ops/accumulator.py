"""The accumulator of a product: its bound, proven from the weights as they are.

    sum over k of |w[k] - zw| * max|x - zx| + |bias|  <  2**31, or 2**47 with a 16-bit operand

(section 4 of the arithmetic).  A channel of an imported model that breaks the bound takes a coarser
weight scale: the smallest power of two times its own under which the bound holds.  What that rounds
off the weights is small against the accumulator, and so against any output that it fits.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import Array, DType, TensorType
from tilewright.ops.builder import WeightCodes

FloatArray = npt.NDArray[np.float64]
LARGEST_SCALE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Terms:
    """What an accumulator sums, with its bound proven.

    Args:
        weights: codes and scales, some of them coarser than those that were given.
        bias: int64 [C], in steps of the accumulator.
        exponents: int64 [C]; the scale of channel c was raised by `2**exponents[c]`.
        bound: the largest possible |accumulator| over all channels.
    """

    weights: WeightCodes
    bias: numerics.IntArray
    exponents: numerics.IntArray
    bound: int


def provable(weights: WeightCodes, bias: FloatArray, x: TensorType, where: str) -> Terms:
    """Weights and bias under which the bound holds, the given ones wherever they allow it.

    Args:
        bias: [C] real, in accumulator steps of the given scales; rounded once, here.

    Raises:
        QuantizationError: no scale makes the bound hold, or the bias is not finite.
    """
    if not np.isfinite(bias).all():
        raise QuantizationError(
            f"{where}: its bias holds NaN or infinite values",
            fix="export the model again from finite weights",
            code="TW-3120",
        )
    centred = weights.codes.astype(np.int64) - weights.zero_point
    most = limit(x.dtype, weights.dtype)
    scale = weights.scale.astype(np.float64)
    exponents = np.zeros(len(centred), np.int64)
    rounded, steps = centred.copy(), np.rint(bias)
    bounds = _bounds(rounded, steps, x)
    while True:
        over = (bounds >= most) & (scale * 2.0 ** (exponents + 1) <= LARGEST_SCALE)
        if not over.any():
            break
        exponents[over] += 1
        shrink = 2.0 ** -exponents[over].astype(np.float64)
        per_channel = shrink.reshape(-1, *[1] * (centred.ndim - 1))
        rounded[over] = numerics.rounded(centred[over] * per_channel)
        steps[over] = np.rint(bias[over] * shrink)
        bounds[over] = _bounds(rounded[over], steps[over], x)
    _require(bounds, most, where)
    raised = dataclasses.replace(
        weights,
        codes=(rounded + weights.zero_point).astype(weights.codes.dtype),
        scale=(scale * 2.0**exponents).astype(np.float32),
    )
    return Terms(raised, steps.astype(np.int64), exponents, int(bounds.max(initial=0)))


def prove_bound(
    weights: Array, weight_zero: int, bias: Array, x: TensorType, weight_dtype: DType, where: str
) -> None:
    """Prove the bound of every channel.

    Args:
        weights: codes [C, ...].
        bias: [C] int64.

    Raises:
        QuantizationError: it does not hold.
    """
    centred = weights.astype(np.int64) - weight_zero
    bounds = _bounds(centred, bias.astype(np.float64), x)
    _require(bounds, limit(x.dtype, weight_dtype), where)


def limit(x: DType, weights: DType) -> int:
    """What the accumulator stays below: 32 bits of 8-bit products, 48 with a 16-bit operand."""
    return 2**47 if DType.S16 in (x, weights) else 2**31


def _bounds(centred: numerics.IntArray, bias: FloatArray, x: TensorType) -> FloatArray:
    """Largest |accumulator| of each channel; exact below 2**53."""
    products = np.abs(centred.reshape(len(centred), -1)).sum(axis=1) * x.reach
    return np.asarray(products + np.abs(bias), np.float64)


def _require(bounds: FloatArray, most: int, where: str) -> None:
    if bounds.max(initial=0) < most:
        return
    channel = int(bounds.argmax())
    raise QuantizationError(
        f"{where}: the accumulator of output channel {channel} can reach {int(bounds[channel])}, "
        f"the limit is {most}",
        fix="raise the scale of its weights or keep the layer in float",
        code="TW-3114",
    )
