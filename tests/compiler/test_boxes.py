from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.boxes import bounding, contains, difference, even_spans, intersection
from tilewright.ops.protocol import Region, Span

SHAPE = (4, 5, 3)


def boxes() -> st.SearchStrategy[Region]:
    def span(extent: int) -> st.SearchStrategy[Span]:
        return st.tuples(st.integers(0, extent - 1), st.integers(1, extent)).map(
            lambda p: Span(p[0], min(extent, p[0] + p[1]))
        )

    return st.tuples(*(span(n) for n in SHAPE))


def mask(box: Region | None) -> np.ndarray:
    out = np.zeros(SHAPE, np.int64)
    if box is not None:
        out[tuple(slice(*s) for s in box)] = 1
    return out


@given(boxes(), boxes())
def test_intersection_and_difference_partition_a_box(a: Region, b: Region) -> None:
    common = intersection(a, b)
    assert np.array_equal(mask(common), mask(a) * mask(b))
    rest = sum((mask(r) for r in difference(a, b)), start=np.zeros(SHAPE, np.int64))
    assert np.array_equal(rest, mask(a) * (1 - mask(b)))


@given(boxes(), boxes())
def test_bounding_contains_both(a: Region, b: Region) -> None:
    box = bounding([a, b])
    assert contains(box, a) and contains(box, b)
    assert all(s.start in (x.start, y.start) for s, x, y in zip(box, a, b, strict=True))


@given(st.integers(1, 100), st.integers(1, 12), st.integers(1, 16))
def test_even_spans_cover_the_extent_at_multiples_of_the_step(
    extent: int, parts: int, step: int
) -> None:
    spans = even_spans(extent, parts, step)
    assert spans[0].start == 0 and spans[-1].stop == extent
    assert all(a.stop == b.start for a, b in itertools.pairwise(spans))
    assert all(s.start % step == 0 and s.size > 0 for s in spans)
    assert len(spans) <= parts
    units = [-(-s.size // step) for s in spans]
    assert max(units) - min(units) <= 1
