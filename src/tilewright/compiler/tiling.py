"""Cutting a group's share of an operator into tiles that fit its SRAM.

Inputs and outputs that are not resident pass through SRAM tile by tile, in two slots when there is
more than one tile, so that transfers of one tile run beside the work of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.compiler.boxes import box_bytes, dense_strides, even_spans, with_span
from tilewright.compiler.shares import constant_bytes, operator_of
from tilewright.graph import Node, TensorType
from tilewright.ops.protocol import Region, Span, Split
from tilewright.targets import Target
from tilewright.targets.cost import ddr_bandwidth

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
        traffic_bytes: DDR bandwidth of what passes through slots.
        workspace_bytes: SRAM of the operator's own, shared by all tiles.
    """

    regions: tuple[Region, ...]
    input_bytes: tuple[int, ...]
    output_bytes: int
    slots: int
    traffic_bytes: int
    workspace_bytes: int

    @property
    def scratch_bytes(self) -> int:
        return self.slots * (sum(self.input_bytes) + self.output_bytes) + self.workspace_bytes


@dataclass(frozen=True)
class TilingProblem:
    """What a tiling must respect.

    Args:
        streamed: which inputs pass through slots.
        output_streamed: whether the output does.
        room: bytes for slots and the operator's workspace.
        constant_room: bytes for one tile's constants.
        work: engine cycles of the whole share.
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
    target: Target


def choose_tiling(problem: TilingProblem) -> Tiling | None:
    """The cheapest tiling that fits, None when not even the smallest does.

    Candidates are ranked by what their largest tile costs; only those ahead are cut in full.
    """
    op = operator_of(problem.node)
    axes = [
        s for s in op.splits(problem.inputs, problem.output) if problem.share[s.axis].size > s.step
    ][:2]
    candidates = sorted(
        itertools.product(*(_piece_counts(problem.share, s) for s in axes)), key=math.prod
    )
    for counts in _ranked(problem, axes, candidates):
        tiling = _tiling(problem, axes, counts)
        if tiling is not None:
            return tiling
    return None


def _ranked(
    problem: TilingProblem, axes: list[Split], candidates: list[tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    """Candidates whose largest tile fits, cheapest first, then those that were not looked at."""
    least_traffic = sum(_ddr_bytes(problem, problem.share))
    ranked: list[tuple[float, tuple[int, ...]]] = []
    looked_at = 0
    for counts in candidates:
        tiles = math.prod(counts)
        if ranked and _cost(problem, least_traffic, tiles) >= min(ranked)[0]:
            break
        looked_at += 1
        tile = _largest_tile(problem, axes, counts)
        if _fits(problem, tile, _slots(problem, tiles)):
            traffic = tiles * sum(_ddr_bytes(problem, tile))
            ranked.append((_cost(problem, traffic, tiles), counts))
    yield from (counts for _, counts in sorted(ranked))
    yield from candidates[looked_at:]


def _slots(problem: TilingProblem, tiles: int) -> int:
    streams = any(problem.streamed) or problem.output_streamed
    return 2 if streams and tiles > 1 else 1


def _largest_tile(problem: TilingProblem, axes: list[Split], counts: Sequence[int]) -> Region:
    """A tile of the largest extents, inside the share where it can be."""
    region = problem.share
    for split, count in zip(axes, counts, strict=True):
        spans = _spans(problem.share, split, count)
        inner = spans[1:-1] or spans
        region = with_span(region, split.axis, max(inner, key=lambda s: s.size))
    return region


def _spans(share: Region, split: Split, count: int) -> list[Span]:
    start, stop = share[split.axis]
    return [
        Span(start + s.start, start + s.stop) for s in even_spans(stop - start, count, split.step)
    ]


def _piece_counts(share: Region, split: Split) -> list[int]:
    most = -(-share[split.axis].size // split.step)
    return [n for n in PIECES if n < most] + [most]


def _tiling(problem: TilingProblem, axes: list[Split], counts: Sequence[int]) -> Tiling | None:
    """Tiles for these piece counts: the last axis outermost, so that constants stay."""
    regions = [problem.share]
    for split, count in reversed(list(zip(axes, counts, strict=True))):
        spans = _spans(problem.share, split, count)
        regions = [with_span(r, split.axis, s) for r in regions for s in spans]
    op = operator_of(problem.node)
    if any(constant_bytes(op, r) > problem.constant_room for r in reversed(regions)):
        return None
    workspace = max(_workspace(problem, region) for region in regions)
    if not any(problem.streamed) and not problem.output_streamed:
        tiling = Tiling(tuple(regions), (0,) * len(problem.inputs), 0, 1, 0, workspace)
        return tiling if workspace <= problem.room else None
    sizes = [_slot_sizes(problem, region) for region in regions]
    *input_bytes, output_bytes = (max(column) for column in zip(*sizes, strict=True))
    traffic = sum(sum(_ddr_bytes(problem, region)) for region in regions)
    slots = _slots(problem, len(regions))
    tiling = Tiling(tuple(regions), tuple(input_bytes), output_bytes, slots, traffic, workspace)
    return tiling if tiling.scratch_bytes <= problem.room else None


def _fits(problem: TilingProblem, region: Region, slots: int) -> bool:
    """Does one tile fit?  A quick test before every tile is looked at."""
    constants = constant_bytes(operator_of(problem.node), region)
    scratch = slots * sum(_slot_sizes(problem, region)) + _workspace(problem, region)
    return constants <= problem.constant_room and scratch <= problem.room


def _workspace(problem: TilingProblem, region: Region) -> int:
    """SRAM that the operator's instructions need for a region, in whole units of alignment."""
    unit = problem.target.alignment
    size = operator_of(problem.node).workspace(region, problem.inputs, problem.output)
    return -(-size // unit) * unit


def _streamed_boxes(
    problem: TilingProblem, region: Region
) -> list[tuple[Region, TensorType] | None]:
    """Boxes that pass through slots for one tile, inputs then output; None for resident ones."""
    needs = operator_of(problem.node).needs(region, problem.inputs, problem.output)
    boxes: list[tuple[Region, TensorType] | None] = [
        (need, tensor) if streams else None
        for need, tensor, streams in zip(needs, problem.inputs, problem.streamed, strict=True)
    ]
    return [*boxes, (region, problem.output) if problem.output_streamed else None]


def _slot_sizes(problem: TilingProblem, region: Region) -> list[int]:
    """SRAM of one slot of each operand, in whole units of the target's alignment."""
    unit = problem.target.alignment
    return [
        0 if b is None else -(-box_bytes(*b) // unit) * unit
        for b in _streamed_boxes(problem, region)
    ]


def _ddr_bytes(problem: TilingProblem, region: Region) -> list[int]:
    """DDR bandwidth of each streamed box, short runs counted as what they occupy."""
    return [
        0 if b is None else box_bandwidth(*b, problem.target)
        for b in _streamed_boxes(problem, region)
    ]


def box_bandwidth(box: Region, tensor: TensorType, target: Target) -> int:
    """DDR bandwidth, in bytes, of a box of a tensor that lies in DDR without gaps."""
    strides = dense_strides(tensor.shape, tensor.dtype.bytes)
    run, axis = tensor.dtype.bytes, len(box)
    while axis and (box[axis - 1].size == 1 or strides[axis - 1] == run):
        run *= box[axis - 1].size
        axis -= 1
    outer = [(s.size, stride) for s, stride in zip(box[:axis], strides, strict=False) if s.size > 1]
    return ddr_bandwidth(run, outer, target)


def _cost(problem: TilingProblem, traffic_bytes: int, tiles: int) -> float:
    """Cycles: the larger of work and transfers, plus what the first and last tile cannot hide."""
    transfer = traffic_bytes / problem.target.ddr_bytes_per_cycle
    longer, shorter = max(problem.work, transfer), min(problem.work, transfer)
    return longer + shorter / tiles + TILE_CYCLES * tiles
