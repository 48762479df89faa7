"""Expand and Tile: elements repeat along an axis, a Slice whose step is 0 there."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from tilewright.ops import elementwise
from tilewright.ops.builder import Builder, Operand, onnx_order
from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site, shape_of
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import Cut, Slice, requantized, sliced

ONNX = ("Expand", "Tile")
KINDS = ("Expand", "Tile")
TYPES = "u8, s8, s16"
LIMITS = "constant shapes and repeats"

OPERATORS = (Slice, Reshape)


@dataclass(frozen=True)
class ExpandPattern:
    """How often each ONNX axis of the output repeats what the input has there."""

    repeats: tuple[int, ...]


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """The repeats follow from the shapes, which the importer has made static."""
    x = node.inputs[0]
    assert x is not None
    if graph.constant(x) is not None:
        return Refusal("its data are constant")
    before, after = shape_of(x), shape_of(node.outputs[0])
    before = (1,) * (len(after) - len(before)) + before
    repeats = tuple(n // m for m, n in zip(before, after, strict=True))
    return Site(
        node.op_type, (node,), (x,), (node.outputs[0],), ExpandPattern(repeats),
        rule=ScaleRule.PASSED,
    )  # fmt: skip


def bind(site: Site, builder: Builder) -> None:
    """One Slice repeats every axis of extent 1; another axis is split in two first."""
    pattern: ExpandPattern = site.pattern
    value = site.outputs[0]
    x = elementwise.lifted(builder, builder.operand(site.inputs[0]), len(pattern.repeats))
    encoding = builder.passed_encoding(value, x)
    single = [a for a, r in enumerate(pattern.repeats) if r > 1 and x.type.shape[x.axis(a)] == 1]
    whole = [a for a, r in enumerate(pattern.repeats) if r > 1 and a not in single]
    if single:
        cuts = [Cut(a, 0, 0, pattern.repeats[a]) for a in single]
        x = sliced(builder, x, cuts, encoding, site.name, None if whole else value)
    for axis in whole:
        x = _tiled(builder, x, axis, pattern.repeats[axis], site.name)
    if whole or not single:
        requantized(builder, x, encoding, site.name, value)


def _tiled(builder: Builder, x: Operand, axis: int, repeats: int, where: str) -> Operand:
    """`x` with an axis of several elements repeated as a whole."""
    at = x.axis(axis)
    shape = x.type.shape
    split = (*shape[:at], 1, *shape[at:])
    order = onnx_order(len(split))
    apart = builder.add(Reshape(split), [x], x.type.encoding, order)
    repeated = sliced(builder, apart, [Cut(at, 0, 0, repeats)], x.type.encoding, where)
    joined = (*shape[:at], repeats * shape[at], *shape[at + 1 :])
    return builder.add(Reshape(joined), [repeated], x.type.encoding, x.permutation)
