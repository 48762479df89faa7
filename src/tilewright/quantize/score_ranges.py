"""Ranges of what Softmax reads.

A score that lies `NOTHING` below its row's maximum has a probability of exactly 0 (section 11 of
the arithmetic), and so has any smaller one.  Values that Softmax alone reads are observed as
`max(x, max(row) - NOTHING)`, and masks that are added to them are cut where they remove a score
for certain: a mask of -10000 must not eat the range of scores that differ by 10.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from tilewright.ops.add import AddPattern
from tilewright.ops.attention import AttentionPattern
from tilewright.ops.pattern import ScaleRule, Site, shape_of
from tilewright.ops.softmax import SoftmaxPattern
from tilewright.quantize.encodings import HEADROOM
from tilewright.quantize.observers import TensorStatistics
from tilewright.quantize.probes import ProbedModel
from tilewright.quantize.ranges import Range
from tilewright.quantize.sites import Partition

NOTHING = 32 / math.log2(math.e)
"""Distance to the row's maximum from which on an exponential is 0."""

FARTHEST = 32768.0
"""Masks are observed within this; infinities become it."""


@dataclass(frozen=True)
class MaskUse:
    """Scores that a mask is added to, times a factor."""

    scores: str
    factor: float


@dataclass(frozen=True)
class Scores:
    """Values whose range only Softmax cares for.

    Args:
        axes: value name -> axis of the Softmax that alone reads it.
        masks: value name -> all that it is used for.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    masks: Mapping[str, tuple[MaskUse, ...]] = field(default_factory=dict)

    def probe(self, model: ir.Model) -> ProbedModel:
        """The model with probes that see these values as far as they count."""
        probed = ProbedModel(model)
        for name, axis in self.axes.items():
            probed.floor_rows(name, axis, NOTHING)
        for name in self.masks:
            probed.clip(name, FARTHEST)
        return probed


def find_scores(partition: Partition, observed: Collection[str]) -> Scores:
    """Inputs of Softmax and of the attentions' Softmax, and the run-time masks added to them.

    Args:
        observed: names of the values that have a range of their own; no others are looked at.
    """
    met = {v.name or "": v for s in partition.sites for v in (*s.inputs, *s.outputs)}
    values = {name: value for name, value in met.items() if name in observed}
    axes: dict[str, int] = {}
    for site in partition.sites:
        if isinstance(site.pattern, AttentionPattern) and site.inner is not None:
            axes[site.inner.name or ""] = len(shape_of(site.inner)) - 1
    for name, value in values.items():
        axis = _axis(value, partition)
        if axis is not None:
            axes[name] = axis
    masks = {name: _uses(value, partition, axes) for name, value in values.items()}
    return Scores(axes, {name: uses for name, uses in masks.items() if uses})


def _axis(value: ir.Value, partition: Partition) -> int | None:
    """The axis along which every reader is a Softmax, behind movement or not; None without one."""
    found = {_axis_in(site, partition) for site in partition.readers(value)}
    return found.pop() if len(found) == 1 else None


def _axis_in(site: Site | None, partition: Partition) -> int | None:
    """The same of one reader, as an axis of what it reads."""
    if site is None:
        return None
    if isinstance(site.pattern, SoftmaxPattern):
        return site.pattern.axis
    axis = _axis(site.outputs[0], partition) if site.rule is ScaleRule.PASSED else None
    if axis is None:
        return None
    before, after = shape_of(site.inputs[0]), shape_of(site.outputs[0])
    match site.kind:
        case "Identity":
            return axis
        case "Transpose":
            return int(site.pattern[axis])
        case "Reshape" if axis == len(after) - 1 and before[-1:] == after[-1:]:
            return len(before) - 1
    return None


def _uses(value: ir.Value, partition: Partition, axes: Mapping[str, int]) -> tuple[MaskUse, ...]:
    """Everything that reads a value as a mask; nothing where something reads it otherwise."""
    found: list[MaskUse] = []
    for site in partition.readers(value):
        uses = () if site is None else _uses_in(site, value, partition, axes)
        if not uses:
            return ()
        found += uses
    return tuple(found)


def _uses_in(
    site: Site, value: ir.Value, partition: Partition, axes: Mapping[str, int]
) -> tuple[MaskUse, ...]:
    pattern, output = site.pattern, site.outputs[0]
    if isinstance(pattern, AttentionPattern):
        mask, product = pattern.scores.mask, pattern.scores.product
        others = (product.a, product.b, pattern.values)
        if mask is None or mask.value is not value or value in others or site.inner is None:
            return ()
        return (MaskUse(site.inner.name or "", mask.factor),)
    if isinstance(pattern, AddPattern):
        name = output.name or ""
        if pattern.constant is not None or name not in axes or len(set(site.inputs)) < 2:
            return ()
        return (MaskUse(name, float(pattern.signs[site.inputs.index(value)])),)
    return _uses(output, partition, axes) if site.rule is ScaleRule.PASSED else ()


def cut_masks(
    scores: Scores, ranges: dict[str, Range], statistics: Mapping[str, TensorStatistics]
) -> None:
    """Narrow the ranges of masks, in place, to what removes a score and all that lies above.

    A mask whose largest value would be cut as well is none: its range stays.
    """
    for name, uses in scores.masks.items():
        signs = {u.factor > 0 for u in uses}
        limit = max(_removing(ranges[u.scores]) / abs(u.factor) for u in uses)
        low, high = ranges[name]
        if signs == {True} and statistics[name].highs.max() > -limit:
            ranges[name] = Range(max(low, -limit), high)
        elif signs == {False} and statistics[name].lows.min() < limit:
            ranges[name] = Range(low, min(high, limit))


def _removing(scores: Range) -> float:
    """What takes any score below all that the codes of others reach, and `NOTHING` more."""
    return 2 * HEADROOM * scores.reach + NOTHING
