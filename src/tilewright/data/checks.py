"""Warnings about calibration samples, each with the number that triggered it and what to do.

Samples are seen one at a time; what is kept per sample is a signature of at most 768 numbers.
Thresholds were set between photographs (natural and scientific ones, text, textures) and the fault
in question; the figures stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.config import per_channel
from tilewright.data.preprocess import Array, InputDescription, image_form, pixels_to_table
from tilewright.data.samples import Sample
from tilewright.data.statistics import F64, InputStatistics

ENOUGH_SAMPLES = 16

SIGNATURE_SIDE = 16
MOST_SIGNATURES = 512
SAME_DISTANCE = 0.05
"""Relative distance of two signatures; different crops of one photograph differ by 0.6 and more."""
SAME_SHARE = 0.25

NOISE_CORRELATION = 0.5
"""Correlation of neighbouring pixels: noise, resized or not, has up to 0.28, grass 0.66."""
NOISE_SHARE = 0.5
NOISE_SMALLEST_SIDE = 8

LARGEST_COMMON_INPUT = 16.0
SMALLEST_COMMON_SPAN = 0.25
NORMALISED_RANGE = 5.0

STD_RATIO = 1.5
"""Median ratio of observed to expected deviation: right 0.99, nearest wrong ones 0.5 and 2.2."""
DEAD_SHARE = 0.25
"""Trained networks keep dead channels, EfficientNet-Lite0 up to 0.13 of a layer; inputs that were
normalised twice silence 0.4 and more."""

MEAN_SHIFT = 1.0
"""Median shift in expected deviations: right 0.1, normalised twice 1.3."""


@dataclass(frozen=True)
class CalibrationWarning:
    """A stable code and one sentence."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


class CalibrationChecks:
    """Watches the samples of a calibration run."""

    def __init__(self, inputs: Sequence[InputDescription]) -> None:
        self._inputs = tuple(inputs)
        self._count = 0
        self._noisy = 0
        self._examined = 0
        self._signatures: list[npt.NDArray[np.float32]] = []
        self.statistics = {
            d.name: InputStatistics(_channel_axis(d)) for d in self._inputs if d.is_image
        }

    def add(self, sample: Sample) -> None:
        """Take one sample into account."""
        self._count += 1
        for name, statistics in self.statistics.items():
            statistics.add(sample.feeds[name])
        planes = [_grey(sample.feeds[d.name], d) for d in self._inputs if d.is_image]
        self._examine_noise(planes)
        if len(self._signatures) < MOST_SIGNATURES:
            arrays = planes or [sample.feeds[d.name] for d in self._inputs]
            self._signatures.append(np.concatenate([_signature(a) for a in arrays]))

    def _examine_noise(self, planes: Sequence[npt.NDArray[np.float32]]) -> None:
        large = [p for p in planes if min(p.shape) >= NOISE_SMALLEST_SIDE]
        if large:
            self._examined += 1
            self._noisy += all(neighbour_correlation(p) < NOISE_CORRELATION for p in large)

    def warnings(self) -> list[CalibrationWarning]:
        """What is wrong with the samples seen so far."""
        found = [few_samples(self._count), same_samples(self._signatures), self._noise()]
        for description in self._inputs:
            if description.is_image:
                found.append(input_range(description))
                total = self.statistics[description.name].total
                if total is not None:
                    found.append(normalised_twice(description, total.low, total.high))
        return [w for w in found if w is not None]

    def _noise(self) -> CalibrationWarning | None:
        if not self._examined or self._noisy <= NOISE_SHARE * self._examined:
            return None
        return CalibrationWarning(
            "noise-samples",
            f"{self._noisy} of {self._examined} pictures look like noise (neighbouring pixels"
            f" correlate below {NOISE_CORRELATION}): ranges found on them do not fit real inputs;"
            " calibrate on pictures like those of the application",
        )


def few_samples(count: int) -> CalibrationWarning | None:
    """Fewer samples than ranges need to settle."""
    if count >= ENOUGH_SAMPLES:
        return None
    return CalibrationWarning(
        "few-samples",
        f"only {count} calibration samples: ranges depend on each of them;"
        f" give at least {ENOUGH_SAMPLES}, better 32",
    )


def same_samples(signatures: Sequence[npt.NDArray[np.float32]]) -> CalibrationWarning | None:
    """Samples that repeat an earlier one, up to noise such as that of another JPEG quality."""
    if len(signatures) < 2:
        return None
    stack = np.stack(signatures).astype(np.float64)
    squares = np.square(stack).sum(axis=1)
    distance = np.maximum(squares[:, None] + squares[None] - 2 * stack @ stack.T, 0)
    scale = np.maximum(squares[:, None], squares[None]) * SAME_DISTANCE**2
    earlier = np.tril(distance <= scale, -1)
    repeats = int(earlier.any(axis=1).sum())
    if repeats <= SAME_SHARE * len(signatures):
        return None
    return CalibrationWarning(
        "same-samples",
        f"{repeats} of {len(signatures)} samples are nearly the same as another: they add nothing"
        " to the ranges; give different ones",
    )


def input_range(description: InputDescription) -> CalibrationWarning | None:
    """A normalisation whose result lies outside of what networks are trained with."""
    spec = description.spec
    table = pixels_to_table(spec, image_form(description).channels)
    low, high = float(table.min()), float(table.max())
    largest = max(abs(low), abs(high))
    span = float((table[255] - table[0]).max())
    scaled = any(v != 1 for v in per_channel(spec.std))
    told = f"input {description.name!r}: pixels 0..255 become {low:.4g}..{high:.4g}"
    if scaled and largest > LARGEST_COMMON_INPUT:
        advice = "mean and std are on 0..255: multiply them by 255 if they were meant for 0..1"
        return CalibrationWarning("input-range", f"{told}, far beyond what networks take; {advice}")
    if span < SMALLEST_COMMON_SPAN:
        return CalibrationWarning(
            "input-range",
            f"{told}, hardly any contrast; give mean and std once, for pixels on 0..255",
        )
    return None


def normalised_twice(
    description: InputDescription, low: F64, high: F64
) -> CalibrationWarning | None:
    """Samples that were normalised before this normalisation is applied.

    Args:
        description: of the image input.
        low: smallest value fed, per channel; the same for `high`.
    """
    spec = description.spec
    mean, std = (np.array(per_channel(v), np.float64) for v in (spec.mean, spec.std))
    if not mean.any() and (std == 1).all():
        return None
    raw_low, raw_high = float((low * std + mean).min()), float((high * std + mean).max())
    if raw_high - raw_low < 1e-6 or max(abs(raw_low), abs(raw_high)) > NORMALISED_RANGE:
        return None
    return CalibrationWarning(
        "normalised-twice",
        f"input {description.name!r}: the samples lie in {raw_low:.3g}..{raw_high:.3g} before mean"
        " and std are applied, as if they had been normalised already;"
        " give pixels on 0..255, or --preprocess none",
    )


def first_layer_statistics(
    observed_mean: F64, observed_std: F64, expected_mean: F64, expected_std: F64
) -> CalibrationWarning | None:
    """Compare the first layer's output with what the model's own statistics imply.

    Args:
        observed_mean: per channel, of the first convolution's output on the samples; likewise
            `observed_std`.
        expected_mean: the running mean of the BatchNormalization that follows it;
            `expected_std`: the square root of its running variance.
    """
    alive = expected_std > 1e-3 * expected_std.max()
    if not alive.any():
        return None
    ratio = float(np.median(observed_std[alive] / expected_std[alive]))
    shift = float(np.median(np.abs(observed_mean - expected_mean)[alive] / expected_std[alive]))
    if 1 / STD_RATIO <= ratio <= STD_RATIO and shift <= MEAN_SHIFT:
        return None
    return CalibrationWarning(
        "input-statistics",
        f"after preprocessing, the first layer's output varies {ratio:.3g} times as much as in"
        f" training and is shifted by {shift:.3g} deviations: check mean, std and pixel range",
    )


def range_set_by_one_sample(
    mins: Array, maxs: Array, names: Sequence[str], *, factor: float = 2.0
) -> list[CalibrationWarning]:
    """Tensors whose range is at least `factor` times as wide as without one sample.

    Args:
        mins: [samples, tensors]; likewise `maxs`.
        names: of the tensors.
    """
    if mins.shape[0] < 3:
        return []
    low, high = np.sort(mins, axis=0), np.sort(maxs, axis=0)
    width = high[-1] - low[0]
    # Dropping one sample removes at most the extreme at one end, or both if it holds both.
    holder = (mins.argmin(axis=0), maxs.argmax(axis=0))
    both = holder[0] == holder[1]
    without_low = high[-1] - low[1]
    without_high = high[-2] - low[0]
    without = np.where(both, high[-2] - low[1], np.minimum(without_low, without_high))
    sample = np.where(both | (without_low < without_high), holder[0], holder[1])
    return [
        CalibrationWarning(
            "one-sample-range",
            f"tensor {names[int(t)]!r}: sample {int(sample[t])} alone makes the range"
            f" {width[t] / max(without[t], 1e-30):.3g} times as wide;"
            " look at that sample, or use the percentile observer",
        )
        for t in np.flatnonzero((width > 0) & (width >= factor * without))
    ]


def dead_channels(max_abs_per_channel: Array, name: str) -> CalibrationWarning | None:
    """More channels that are zero on every sample than training leaves behind.

    Args:
        max_abs_per_channel: [channels], largest magnitude over all samples.
        name: of the tensor.
    """
    dead = int((max_abs_per_channel == 0).sum())
    if dead <= DEAD_SHARE * max_abs_per_channel.size:
        return None
    return CalibrationWarning(
        "dead-channels",
        f"tensor {name!r}: {dead} of {max_abs_per_channel.size} channels are zero on every sample;"
        " check the preprocessing, or give more varied samples",
    )


def neighbour_correlation(plane: npt.NDArray[np.float32]) -> float:
    """Mean correlation of vertical and horizontal neighbours of [h, w]; 1 for a flat plane."""
    return 0.5 * (_correlation(plane[1:], plane[:-1]) + _correlation(plane[:, 1:], plane[:, :-1]))


def _correlation(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt(np.square(a).sum() * np.square(b).sum()))
    return float((a * b).sum()) / scale if scale > 0 else 1.0


def _channel_axis(description: InputDescription) -> int:
    return 1 if image_form(description).layout == "NCHW" else 3


def _grey(x: Array, description: InputDescription) -> npt.NDArray[np.float32]:
    """Mean over the channels of one image feed: [h, w]."""
    planes = np.asarray(x[0], np.float32)
    return np.asarray(planes.mean(axis=_channel_axis(description) - 1), np.float32)


def _signature(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """At most 256 block means, without their own mean: what tells samples apart."""
    if x.ndim == 2 and min(x.shape) >= SIGNATURE_SIDE:
        rows, columns = (
            np.linspace(0, n, SIGNATURE_SIDE, endpoint=False).astype(int) for n in x.shape
        )
        sums = np.add.reduceat(np.add.reduceat(x.astype(np.float64), rows, 0), columns, 1)
        areas = np.outer(np.diff([*rows, x.shape[0]]), np.diff([*columns, x.shape[1]]))
        means = (sums / areas).reshape(-1)
    else:
        flat = x.reshape(-1).astype(np.float64)
        starts = np.unique(np.linspace(0, flat.size, SIGNATURE_SIDE**2, endpoint=False).astype(int))
        means = np.add.reduceat(flat, starts) / np.diff([*starts, flat.size])
    return np.asarray(means - means.mean(), np.float32)
