"""Cutting a group's share of an operator into tiles that fit its SRAM.

Inputs and outputs that are not resident pass through SRAM tile by tile, in two slots when there is
more than one tile, so that transfers of one tile run beside the work of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.boxes import box_bytes, even_spans, with_span
from tilewright.compiler.shares import constant_bytes, operator_of
from tilewright.graph import Node, TensorType
from tilewright.ops.protocol import Region, Split

PIECES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512)
"""Numbers of pieces that an axis is tried with."""

TILE_CYCLES = 64
"""Charged for each tile when choosing, so that equal traffic prefers fewer tiles."""


@dataclass(frozen=True)
class Tiling:
    """Tiles of one group's share, in execution order.

    Args:
        regions: boxes of the output.
        input_bytes: SRAM of one slot of each input; 0 for a resident one.
        output_bytes: SRAM of one slot of the output; 0 for a resident one.
        slots: 1 or 2.
        traffic_bytes: what passes through slots.
    """

    regions: tuple[Region, ...]
    input_bytes: tuple[int, ...]
    output_bytes: int
    slots: int
    traffic_bytes: int

    @property
    def scratch_bytes(self) -> int:
        return self.slots * (sum(self.input_bytes) + self.output_bytes)


@dataclass(frozen=True)
class TilingProblem:
    """What a tiling must respect.

    Args:
        streamed: which inputs pass through slots.
        output_streamed: whether the output does.
        room: bytes for slots.
        constant_room: bytes for one tile's constants.
        work: engine cycles of the whole share.
        ddr_bytes_per_cycle: of the target.
    """

    node: Node
    inputs: tuple[TensorType, ...]
    output: TensorType
    share: Region
    streamed: tuple[bool, ...]
    output_streamed: bool
    room: int
    constant_room: int
    work: int
    ddr_bytes_per_cycle: float


def choose_tiling(problem: TilingProblem) -> Tiling | None:
    """The cheapest tiling that fits, None when not even the smallest does."""
    op = operator_of(problem.node)
    axes = [
        s for s in op.splits(problem.inputs, problem.output) if problem.share[s.axis].size > s.step
    ][:2]
    candidates = itertools.product(*(_piece_counts(problem.share, s) for s in axes))
    best: tuple[float, Tiling] | None = None
    for counts in sorted(candidates, key=math.prod):
        if best is not None and problem.work + TILE_CYCLES * math.prod(counts) >= best[0]:
            break
        tiling = _tiling(problem, axes, counts)
        if tiling is None:
            continue
        cost = _cost(problem, tiling)
        if best is None or cost < best[0]:
            best = cost, tiling
    return best[1] if best is not None else None


def _piece_counts(share: Region, split: Split) -> list[int]:
    most = -(-share[split.axis].size // split.step)
    return [n for n in PIECES if n < most] + [most]


def _tiling(problem: TilingProblem, axes: list[Split], counts: Sequence[int]) -> Tiling | None:
    """Tiles for these piece counts: the last axis outermost, so that constants stay."""
    regions = [problem.share]
    for split, count in reversed(list(zip(axes, counts, strict=True))):
        start, stop = problem.share[split.axis]
        spans = even_spans(stop - start, count, split.step)
        regions = [
            with_span(r, split.axis, type(s)(start + s.start, start + s.stop))
            for r in regions
            for s in spans
        ]
    op = operator_of(problem.node)
    streams = any(problem.streamed) or problem.output_streamed
    slots = 2 if streams and len(regions) > 1 else 1
    if not _fits(problem, regions[len(regions) // 2], slots):
        return None
    if any(constant_bytes(op, r) > problem.constant_room for r in reversed(regions)):
        return None
    if not streams:
        return Tiling(tuple(regions), (0,) * len(problem.inputs), 0, 1, 0)
    parts = [_slot_sizes(problem, region) for region in regions]
    *input_bytes, output_bytes = (max(column) for column in zip(*parts, strict=True))
    traffic = sum(map(sum, parts))
    tiling = Tiling(tuple(regions), tuple(input_bytes), output_bytes, slots, traffic)
    return tiling if tiling.scratch_bytes <= problem.room else None


def _fits(problem: TilingProblem, region: Region, slots: int) -> bool:
    """Does one tile fit?  A quick test before every tile is looked at."""
    constants = constant_bytes(operator_of(problem.node), region)
    scratch = slots * sum(_slot_sizes(problem, region))
    return constants <= problem.constant_room and scratch <= problem.room


def _slot_sizes(problem: TilingProblem, region: Region) -> list[int]:
    """Bytes that pass through slots for one tile: of each input, then of the output."""
    needs = operator_of(problem.node).needs(region, problem.inputs, problem.output)
    sizes = [
        box_bytes(need, tensor) if streams else 0
        for need, tensor, streams in zip(needs, problem.inputs, problem.streamed, strict=True)
    ]
    return [*sizes, box_bytes(region, problem.output) if problem.output_streamed else 0]


def _cost(problem: TilingProblem, tiling: Tiling) -> float:
    """Cycles: the larger of work and transfers, plus what the first and last tile cannot hide."""
    transfer = tiling.traffic_bytes / problem.ddr_bytes_per_cycle
    longer, shorter = max(problem.work, transfer), min(problem.work, transfer)
    return longer + shorter / len(tiling.regions) + TILE_CYCLES * len(tiling.regions)
