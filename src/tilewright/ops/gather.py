"""Gather with any constant indices: evenly spaced runs of them, one Slice each, joined again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.ops.builder import Builder
from tilewright.ops.concat import Concat
from tilewright.ops.copying import UNIT
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, attribute_int, shape_of
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import Cut, Slice, requantized, sliced

ONNX = ("Gather",)
KINDS = ("Gather",)
TYPES = "u8, s8, s16"
LIMITS = "constant indices of any shape in at most 64 evenly spaced runs"

OPERATORS = (Slice, Concat, Reshape)

MOST_RUNS = 64


@dataclass(frozen=True)
class GatherPattern:
    """What is taken along ONNX `axis`, and the shape of the indices, whose axes take its place."""

    axis: int
    runs: tuple[Cut, ...]
    shape: tuple[int, ...]


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A Gather of run-time data by constant indices."""
    x, indices = node.inputs[0], graph.constant(node.inputs[1])
    assert x is not None
    if indices is None or indices.ndim == 0 or graph.constant(x) is not None:
        return None
    shape = shape_of(x)
    axis = attribute_int(node, "axis", 0) % len(shape)
    runs = _runs([int(i) % shape[axis] for i in indices.reshape(-1)], axis)
    if len(runs) > MOST_RUNS:
        return Refusal(
            f"its indices fall into {len(runs)} evenly spaced runs; {MOST_RUNS} are supported"
        )
    pattern = GatherPattern(axis, runs, indices.shape)
    outputs = (node.outputs[0],)
    return Site("Gather", (node,), (x,), outputs, pattern, rule=ScaleRule.PASSED)


def _runs(chosen: Sequence[int], axis: int) -> tuple[Cut, ...]:
    """The indices as evenly spaced runs, each as long as possible."""
    found: list[Cut] = []
    at = 0
    while at < len(chosen):
        step = chosen[at + 1] - chosen[at] if at + 1 < len(chosen) else 1
        end = at + 1
        while end < len(chosen) and chosen[end] - chosen[end - 1] == step:
            end += 1
        found.append(Cut(axis, chosen[at], step, end - at))
        at = end
    return tuple(found)


def bind(site: Site, builder: Builder) -> None:
    """The runs under the input's encoding, one after another."""
    pattern: GatherPattern = site.pattern
    value = site.outputs[0]
    x = builder.operand(site.inputs[0])
    encoding = x.type.encoding
    parts = [sliced(builder, x, [run], encoding, site.name) for run in pattern.runs]
    at = x.axis(pattern.axis)
    joined = parts[0]
    if len(parts) > 1:
        units = (UNIT.m,) * len(parts), (UNIT.shift,) * len(parts)
        joined = builder.add(Concat(at, *units), parts, encoding, x.permutation)
    stored = joined.type.shape
    shape = (*stored[:at], *pattern.shape, *stored[at + 1 :])
    more = len(pattern.shape) - 1
    axes = tuple(range(pattern.axis, pattern.axis + len(pattern.shape)))
    rest = tuple(p + more * (p > pattern.axis) for p in x.permutation)
    permutation = (*rest[:at], *axes, *rest[at + 1 :])
    moved = builder.add(Reshape(shape), [joined], encoding, permutation)
    requantized(builder, moved, builder.passed_encoding(value, x), site.name, value)
