from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.ring import Piece, lay_out_ring


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_a_piece_takes_over_only_bytes_whose_last_tile_it_names(sizes: list[int]) -> None:
    pieces = [Piece(f"p{i}", 0, n, i, i) for i, n in enumerate(sizes)]
    slots = lay_out_ring(pieces, 64, 64 + 800, 16)
    for i, slot in enumerate(slots):
        assert slot.address >= 64 and slot.address + slot.piece.bytes <= 864
        assert slot.address % 16 == 0
        overlapped = [
            s.piece.last_tile
            for s in slots[:i]
            if s.address < slot.address + slot.piece.bytes
            and slot.address < s.address + s.piece.bytes
        ]
        assert slot.after_tile == max(overlapped, default=-1)
        assert slot.after_tile < slot.piece.tile


def test_pieces_of_one_tile_lie_beside_each_other_across_the_end() -> None:
    pieces = [
        Piece("a", 0, 300, 0, 0),
        Piece("b", 0, 300, 1, 1),
        Piece("c", 0, 300, 1, 1),
    ]
    slots = lay_out_ring(pieces, 0, 700, 1)
    assert [s.address for s in slots] == [0, 300, 0]
    assert slots[2].after_tile == 0
