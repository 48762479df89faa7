from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.allocate import Overflow, Request, allocate


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    out = []
    for i in range(draw(st.integers(1, 20))):
        first = draw(st.integers(0, 15))
        out.append(
            Request(f"t{i}", draw(st.integers(1, 500)), first, first + draw(st.integers(0, 6)))
        )
    return out


@given(requests())
def test_buffers_that_live_together_never_overlap(wanted: list[Request]) -> None:
    placed = allocate(wanted, 64, 1 << 20, 32)
    assert not isinstance(placed, Overflow)
    for a in wanted:
        assert placed[a.name] >= 64 and placed[a.name] % 32 == 0
        for b in wanted:
            if a.name < b.name and a.first <= b.last and b.first <= a.last:
                assert (
                    placed[a.name] + a.bytes <= placed[b.name]
                    or placed[b.name] + b.bytes <= placed[a.name]
                )


def test_disjoint_lifetimes_share_bytes() -> None:
    placed = allocate([Request("a", 100, 0, 1), Request("b", 100, 2, 3)], 0, 128, 32)
    assert placed == {"a": 0, "b": 0}


def test_what_does_not_fit_is_named() -> None:
    placed = allocate([Request("a", 100, 0, 1), Request("b", 60, 1, 3)], 0, 128, 32)
    assert isinstance(placed, Overflow)
    assert placed.request.name == "b" and placed.end == 188
