"""Sequences of tensors whose members are known."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tilewright.importer.forms.site import Site
from tilewright.importer.graphs import array_of, input_at, int_attribute, producer_of, static_shape


def sequence_at(site: Site) -> Sequence[ir.Value] | None:
    """SequenceAt(SplitToSequence(x), i) = Slice(x); of a SequenceConstruct, its input i."""
    index = site.constant(1)
    if index is None:
        return None
    position = int(index.reshape(()))
    made = producer_of(site.input(0), "SequenceConstruct")
    if made is not None:
        member = made.inputs[position]
        return None if member is None else [member]
    split = producer_of(site.input(0), "SplitToSequence")
    if split is None or split.inputs[0] is None:
        return None
    shape = static_shape(split.inputs[0])
    if shape is None:
        return None
    axis = int_attribute(split, "axis", 0) % len(shape)
    lengths = _lengths(split, shape[axis])
    if lengths is None:
        return None
    start = sum(lengths[: position % len(lengths)])
    bounds = ([start], [start + lengths[position]], [axis], [1])
    operands = [
        site.new_ints(numbers, role)
        for numbers, role in zip(bounds, ("starts", "ends", "axes", "steps"), strict=True)
    ]
    part = site.emit("Slice", [split.inputs[0], *operands])
    if input_at(split, 1) is None and not int_attribute(split, "keepdims", 1):
        rest = [dim for place, dim in enumerate(shape) if place != axis]
        part = site.emit("Reshape", [part, site.new_ints(rest, "shape")])
    return [part]


def _lengths(split: ir.Node, total: int) -> list[int] | None:
    if input_at(split, 1) is None:
        return [1] * total
    stated = array_of(split.inputs[1])
    if stated is None:
        return None
    if stated.ndim:
        return [int(length) for length in stated]
    step = int(stated.reshape(()))
    return [min(step, total - start) for start in range(0, total, step)]
