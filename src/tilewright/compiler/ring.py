"""The constants' ring: weights stream through SRAM in the order in which tiles use them.

Pieces are laid one behind the other and wrap around, so where each lies and whose place it takes is
known before anything is scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Rows of one constant that a tile needs, first used by tile number `tile` of the group.

    Args:
        source: DDR address.
        last_tile: the last tile that uses it.
    """

    name: str
    source: int
    bytes: int
    tile: int
    last_tile: int


@dataclass(frozen=True)
class Slot:
    """Where a piece lies.

    Args:
        after_tile: the last tile that uses the bytes this piece takes over; -1 for fresh ones.
    """

    piece: Piece
    address: int
    after_tile: int


def lay_out_ring(pieces: Sequence[Piece], base: int, end: int, alignment: int) -> list[Slot]:
    """Addresses in [base, end); every piece must fit."""
    slots: list[Slot] = []
    occupied: list[Slot] = []
    at = base
    for piece in pieces:
        if at + piece.bytes > end:
            at = base
        stop = at + piece.bytes
        taken = [s for s in occupied if s.address < stop and at < s.address + s.piece.bytes]
        after = max((s.piece.last_tile for s in taken), default=-1)
        slot = Slot(piece, at, after)
        covered = [s for s in taken if at <= s.address and s.address + s.piece.bytes <= stop]
        occupied = [s for s in occupied if s not in covered] + [slot]
        slots.append(slot)
        at = -(-stop // alignment) * alignment
    return slots
