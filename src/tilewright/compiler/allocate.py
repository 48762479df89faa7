"""Addresses for buffers whose lifetimes are known: first fit, largest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """A buffer that lives from step `first` to step `last`, inclusive."""

    name: str
    bytes: int
    first: int
    last: int


class Overflow(NamedTuple):
    """The request that found no room below the limit, and what it would have needed."""

    request: Request
    end: int


def allocate(
    requests: Sequence[Request], base: int, limit: int, alignment: int
) -> dict[str, int] | Overflow:
    """An address for each request, so that buffers that live at one step never overlap.

    Args:
        base, limit: the address range [base, limit).
        alignment: of every address.
    """
    placed: list[tuple[int, int, Request]] = []
    addresses: dict[str, int] = {}
    for request in sorted(requests, key=lambda r: (-r.bytes, r.first, r.name)):
        at = _align(base, alignment)
        for start, end, other in placed:
            if other.last < request.first or request.last < other.first:
                continue
            if start >= at + request.bytes:
                break
            at = max(at, _align(end, alignment))
        if at + request.bytes > limit:
            return Overflow(request, at + request.bytes)
        addresses[request.name] = at
        placed.append((at, at + request.bytes, request))
        placed.sort(key=lambda p: p[:2])
    return addresses


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
