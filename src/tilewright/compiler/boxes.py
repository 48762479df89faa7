"""Boxes of tensors: intersection, difference, and how a box lies in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tilewright.graph import TensorType
from tilewright.ops.protocol import Region, Span, region_elements


def intersection(a: Region, b: Region) -> Region | None:
    """The common box, None when there is none."""
    box = []
    for (a_start, a_stop), (b_start, b_stop) in zip(a, b, strict=True):
        start, stop = max(a_start, b_start), min(a_stop, b_stop)
        if stop <= start:
            return None
        box.append(Span(start, stop))
    return tuple(box)


def overlap(a: Region, b: Region) -> bool:
    """Have the boxes an element in common?"""
    for (a_start, a_stop), (b_start, b_stop) in zip(a, b, strict=True):
        if a_stop <= b_start or b_stop <= a_start:
            return False
    return True


def bounding(boxes: Iterable[Region]) -> Region:
    """The smallest box around all of them."""
    spans = zip(*boxes, strict=True)
    return tuple(Span(min(s.start for s in axis), max(s.stop for s in axis)) for axis in spans)


def difference(a: Region, b: Region) -> list[Region]:
    """`a` without `b`, as disjoint boxes."""
    common = intersection(a, b)
    if common is None:
        return [a]
    rest: list[Region] = []
    core = list(a)
    for axis, (outer, inner) in enumerate(zip(a, common, strict=True)):
        sides = (Span(outer.start, inner.start), Span(inner.stop, outer.stop))
        rest += [with_span(tuple(core), axis, span) for span in sides if span.size > 0]
        core[axis] = inner
    return rest


def contains(outer: Region, inner: Region) -> bool:
    return all(o.start <= i.start and i.stop <= o.stop for o, i in zip(outer, inner, strict=True))


def box_bytes(box: Region, tensor: TensorType) -> int:
    return region_elements(box) * tensor.dtype.bytes


def dense_strides(shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Byte strides of a box stored without gaps."""
    strides = [item] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def even_spans(extent: int, parts: int, step: int) -> list[Span]:
    """`extent` cut into at most `parts` spans at multiples of `step`, sizes as even as can be."""
    units = -(-extent // step)
    parts = min(parts, units)
    edges = [min(extent, step * (units * i // parts)) for i in range(parts)] + [extent]
    return [Span(a, b) for a, b in itertools.pairwise(edges) if b > a]


def with_span(box: Region, axis: int, span: Span) -> Region:
    return (*box[:axis], span, *box[axis + 1 :])
