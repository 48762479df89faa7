"""From calibrated ranges to one encoding for every activation.

Values that movement connects form a group with one encoding; the group's range is the union of what
its computed members span.  A Concat joins the groups of those inputs whose range is at least half
as wide as the union; the others keep their own scale and are rescaled while they are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from tilewright.graph import DType, Encoding
from tilewright.numerics import ScalarFunction
from tilewright.ops.functions import Unary
from tilewright.ops.pattern import FloatGraph, ScaleRule, Site
from tilewright.quantize import outputs
from tilewright.quantize.ranges import ActivationType, Range, union
from tilewright.quantize.scheme import Scheme
from tilewright.quantize.sites import Partition

AGREEING_SHARE = 0.5

HEADROOM = 2.0
"""s16 outputs, residual streams and scores span twice the calibrated range: results beyond it must
not saturate, and 15 bits are far finer than what the 8-bit layers before resolve."""

SIGMOID_REACH = 12.0
"""Sigmoid and Tanh are constant to half a 16-bit step beyond it."""

WORST_ERROR = 1.0
"""In output steps; the arithmetic allows 2 for interpolation and rounding together."""

SATURATING = {"Sigmoid": SIGMOID_REACH, "Tanh": SIGMOID_REACH / 2}


@dataclass
class _Group:
    """Values with one encoding."""

    type: ActivationType
    range: Range
    fixed: bool = False
    members: list[str] = field(default_factory=list)


def observed_values(partition: Partition) -> dict[str, Site | None]:
    """Names of the values whose range calibration must find -> the site that makes them.

    These are results of calibrated operators, pre-activations before a table, and what enters from
    outside (None).
    """
    found: dict[str, Site | None] = {}
    for site in partition.sites:
        for value in site.inputs:
            if partition.made_by(value) is None and value.const_value is None:
                found.setdefault(value.name or "", None)
        if site.rule is ScaleRule.FREE:
            found.update((v.name or "", site) for v in site.outputs)
        if site.inner is not None:
            found[site.inner.name or ""] = site
    return found


def assign_encodings(
    partition: Partition,
    ranges: Mapping[str, Range],
    scheme: Scheme,
    graph: FloatGraph,
    wide: frozenset[str] = frozenset(),
) -> dict[str, Encoding]:
    """Encodings of all inputs, outputs and pre-activations of the sites, by value name.

    Args:
        ranges: of the `observed_values`.
        wide: values that take 16 bits whatever the scheme says of others.
    """
    groups = _Groups(partition, ranges, scheme, graph, wide)
    for site in partition.sites:
        groups.add(site)
    encodings = groups.encodings()
    for site in partition.sites:
        if site.inner is not None:
            name = site.inner.name or ""
            output = encodings[site.outputs[0].name or ""]
            encodings[name] = _pre_activation(site, ranges[name], output, scheme)
    return encodings


class _Groups:
    def __init__(
        self,
        partition: Partition,
        ranges: Mapping[str, Range],
        scheme: Scheme,
        graph: FloatGraph,
        wide: frozenset[str],
    ) -> None:
        self.partition, self.ranges, self.scheme, self.graph = partition, ranges, scheme, graph
        self.of: dict[str, _Group] = {}
        ends = outputs.leaves(partition) if scheme.outputs == "s16" else {}
        self.wide = wide | {value.name or "" for value in ends}

    def add(self, site: Site) -> None:
        for value in site.inputs:
            if (value.name or "") not in self.of:
                self.found(value, None, self.entering(value))
        names = [v.name or "" for v in site.outputs]
        if site.rule is ScaleRule.PASSED:
            group = self.of[site.inputs[0].name or ""]
            group.members += names
            self.of.update((name, group) for name in names)
        elif site.rule is ScaleRule.SHARED:
            self.join(site)
        else:
            for value in site.outputs:
                fixed = site.fixed if site.rule is ScaleRule.FIXED else None
                reals = Range(*fixed) if fixed is not None else self.ranges[value.name or ""]
                self.found(value, site, reals, fixed is not None)

    def found(
        self, value: ir.Value, site: Site | None, reals: Range, is_fixed: bool = False
    ) -> None:
        """A group of its own for a value that is no movement's result."""
        name = value.name or ""
        kind = self.scheme.activation_type(site)
        if name in self.wide and kind.dtype is not DType.S16:
            kind = ActivationType(DType.S16, True, kind.power_of_two)
            limits = _limits(site)
            grown = 1.0 if is_fixed else HEADROOM
            reals = Range(reals.low * grown, reals.high * grown) if limits is None else limits
        self.of[name] = _Group(kind, reals, is_fixed, [name])

    def entering(self, value: ir.Value) -> Range:
        constant = self.graph.constant(value)
        if constant is None:
            return self.ranges[value.name or ""]
        return Range(min(float(constant.min()), 0.0), max(float(constant.max()), 0.0))

    def constants(self, site: Site) -> list[Range]:
        """What the constant operands of a site span."""
        operands = [v for node in site.nodes for v in node.inputs]
        found = [v for v in operands if v is not None and self.graph.constant(v) is not None]
        return [self.entering(v) for v in found]

    def join(self, site: Site) -> None:
        """A Concat's output, with the groups of the inputs that may share its scale."""
        inputs = {id(g): g for v in site.inputs for g in [self.of[v.name or ""]]}
        groups = list(inputs.values())
        whole = union([*(g.range for g in groups), *self.constants(site)])
        wide = next((g.type for g in groups if g.type.dtype is DType.S16), None)
        kind = self.scheme.activation_type(site) if wide is None else wide
        same_scale = self.scheme.concat_same_scale
        agreeing = [
            g
            for g in groups
            if g.type == kind
            and (same_scale or (not g.fixed and g.range.width >= AGREEING_SHARE * whole.width))
        ]
        if len({(g.range, g.type) for g in groups}) == 1 and whole == groups[0].range:
            agreeing = groups
        joined = _Group(kind, whole, any(g.fixed for g in agreeing))
        for group in agreeing:
            joined.members += group.members
        name = site.outputs[0].name or ""
        joined.members.append(name)
        self.of.update((member, joined) for member in joined.members)

    def encodings(self) -> dict[str, Encoding]:
        """In the order in which the values were found."""
        made: dict[int, Encoding] = {}
        for group in self.of.values():
            if id(group) not in made:
                made[id(group)] = group.type.encode(group.range)
        return {name: made[id(group)] for name, group in self.of.items()}


def unary_of(site: Site | None) -> Unary | None:
    """The function at the end of a fused pattern."""
    pattern = None if site is None else site.pattern
    found: Unary | None = getattr(getattr(pattern, "activation", None), "unary", None)
    return found


def _limits(site: Site | None) -> Range | None:
    """What the function at the end of a pattern can give at most, where it is bounded."""
    unary = unary_of(site)
    return None if unary is None or unary.limits is None else Range(*unary.limits)


def _pre_activation(site: Site, reals: Range, output: Encoding, scheme: Scheme) -> Encoding:
    """Symmetric s16 where a 16-bit table follows the function closely enough, else 8 bits."""
    unary = unary_of(site)
    kind = ActivationType(DType.S16, True, scheme.activations.power_of_two)
    if unary is None:
        return kind.encode(Range(HEADROOM * reals.low, HEADROOM * reals.high))
    reach = min(reals.reach, SATURATING.get(unary.name, reals.reach))
    encoding = kind.encode(Range(-reach, reach))
    if interpolation_error(unary.function, encoding.scale) <= WORST_ERROR * output.scale:
        return encoding
    return scheme.activation_type(site).encode(reals)


def interpolation_error(f: ScalarFunction, scale: float) -> float:
    """Largest distance of f from its 16-bit table (section 7), at quarters of its steps."""
    values = [f(scale * (-32768 + 32 * i)) for i in range(4 * 512 + 1)]
    finite = np.nan_to_num(np.array(values), nan=np.inf)
    left, right = finite[:-4:4, None], finite[4::4, None]
    straight = left + (right - left) * np.array([0.25, 0.5, 0.75])
    inner = np.stack([finite[1::4], finite[2::4], finite[3::4]], axis=1)
    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(np.abs(inner - straight), nan=np.inf).max())
