"""Movement that only renames or permutes axes: Reshape and its kin, Transpose, Identity.

An ONNX Transpose moves nothing here: it changes which ONNX axis each stored axis holds.  A reshape
that cuts or joins neighbouring axes keeps the stored order too; only one that crosses the stored
order (flattening channels-last features, for instance) needs a permutation first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from tilewright.ops.builder import Builder, Operand, Permutation, channels_last, onnx_order
from tilewright.ops.pattern import (
    FloatGraph,
    Refusal,
    ScaleRule,
    Site,
    attribute_ints,
    shape_of,
)
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import requantized
from tilewright.ops.transpose import Transpose

ONNX = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose")
KINDS = ("Reshape", "Transpose", "Identity")
TYPES = "u8, s8, s16"
LIMITS = "static shapes; a Transpose only relabels axes, a Reshape moves data where it crosses them"

OPERATORS = (Reshape, Transpose)

NARROWED = "pkg.tilewright.narrowed"
"""Metadata of an Identity that stands where a 16-bit tensor becomes an 8-bit one."""


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """Any of `ONNX`; the shape is that of the output, which the importer has made static."""
    x = node.inputs[0]
    assert x is not None
    if graph.constant(x) is not None:
        return Refusal("its data are constant")
    kind = node.op_type if node.op_type in KINDS else "Reshape"
    rank = len(shape_of(x))
    pattern = attribute_ints(node, "perm", onnx_order(rank)[::-1]) if kind == "Transpose" else None
    rule = ScaleRule.FREE if NARROWED in node.metadata_props else ScaleRule.PASSED
    return Site(kind, (node,), (x,), (node.outputs[0],), pattern, rule=rule)


def bind(site: Site, builder: Builder) -> None:
    """Relabel axes where that is enough, else permute and reshape."""
    x, value = builder.operand(site.inputs[0]), site.outputs[0]
    match site.kind:
        case "Transpose":
            permutation = tuple(site.pattern.index(p) for p in x.permutation)
            moved = Operand(x.name, x.type, permutation)
        case "Identity":
            moved = x
        case _:
            moved = _reshaped(builder, x, shape_of(site.inputs[0]), shape_of(value))
    requantized(builder, moved, builder.passed_encoding(value, x), site.name, value)


def _reshaped(
    builder: Builder, x: Operand, before: tuple[int, ...], after: tuple[int, ...]
) -> Operand:
    order, permutation = reshape_layout(before, x.permutation, after)
    moved = builder.permuted(x, order) if order != x.permutation else x
    shape = tuple(after[p] for p in permutation)
    if shape == moved.type.shape:
        return Operand(moved.name, moved.type, permutation)
    return builder.add(Reshape(shape), [moved], x.type.encoding, permutation)


def reshape_layout(
    before: Sequence[int], permutation: Permutation, after: Sequence[int]
) -> tuple[Permutation, Permutation]:
    """Stored orders that make a reshape free.

    The axes fall into groups of equal product.  Groups may stand in any stored order; within one,
    the input's axes must be neighbours in ONNX order.

    Args:
        before, after: ONNX shapes.
        permutation: stored order of the input.

    Returns:
        The stored order that the input must have (the one it has where possible) and the
        output's.
    """
    groups = _groups(before, after)
    groups.sort(key=lambda g: min(permutation.index(a) for a in g[0]))
    wanted = iter([a for inputs, _ in groups for a in inputs])
    order = tuple(a if before[a] == 1 else next(wanted) for a in permutation)
    return order, _completed([a for _, outputs in groups for a in outputs], after)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest pairing of axes of equal product; those of extent 1 are left out."""
    left = [a for a, n in enumerate(before) if n != 1]
    right = [a for a, n in enumerate(after) if n != 1]
    groups = []
    while left:
        inputs, outputs = [left.pop(0)], [right.pop(0)]
        while (p := math.prod(before[a] for a in inputs)) != (
            q := math.prod(after[a] for a in outputs)
        ):
            if p < q:
                inputs.append(left.pop(0))
            else:
                outputs.append(right.pop(0))
        groups.append((inputs, outputs))
    return groups


def _completed(order: Sequence[int], shape: Sequence[int]) -> Permutation:
    """`order` with the axes of extent 1 put in, in the layout that most readers want."""
    rank = len(shape)
    usual = (channels_last(rank), onnx_order(rank))
    for candidate in usual if rank == 4 else reversed(usual):
        if [a for a in candidate if shape[a] != 1] == list(order):
            return candidate
    return (*(a for a in range(rank) if shape[a] == 1), *order)
