"""Where every tensor lives: in SRAM for its whole life, or in DDR and tile by tile.

A resident tensor is held by each group that makes or reads it: the box around the group's own share
and all that its operators read.  What a group holds but does not make comes from the others through
DDR.  When SRAM does not suffice, tensors become non-resident, largest first, until it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilewright.compiler.allocate import Overflow, Request, allocate
from tilewright.compiler.boxes import bounding, box_bytes, difference, intersection
from tilewright.compiler.shares import Shares, constant_bytes, operator_of, region_cycles
from tilewright.compiler.tiling import Tiling, TilingProblem, choose_tiling
from tilewright.errors import CompileError
from tilewright.graph import Graph
from tilewright.ops.protocol import Region, Split, whole
from tilewright.targets import Target


@dataclass(frozen=True)
class Holding:
    """The box of a resident tensor in one group, and the steps between which it lives."""

    box: Region
    first: int
    last: int


@dataclass(frozen=True)
class Placement:
    """Every decision about memory.

    Args:
        holdings: (tensor, group) -> holding, for resident tensors.
        tilings: (node index, group) -> tiles.
        addresses: group -> name -> SRAM address; slots are named by `slot_name`.
        ring: [base, end) of the constants' ring in every group's SRAM.
        sram_bytes: SRAM in use.
        gave_up: some tensor is not resident for want of SRAM.
    """

    shares: Shares
    resident: frozenset[str]
    holdings: dict[tuple[str, int], Holding]
    tilings: dict[tuple[int, int], Tiling]
    addresses: tuple[dict[str, int], ...] = field(default=())
    ring: tuple[int, int] = (0, 0)
    sram_bytes: int = 0
    gave_up: bool = False

    def in_ddr(self, graph: Graph, tensor: str) -> bool:
        """Does the tensor have a home in DDR?"""
        if tensor not in self.resident or any(
            b.tensor == tensor for b in (*graph.inputs, *graph.outputs)
        ):
            return True
        return any(self.missing(tensor, g) for g in range(self.shares.groups))

    def missing(self, tensor: str, group: int) -> list[Region]:
        """Boxes that a group holds without making them."""
        holding = self.holdings.get((tensor, group))
        if holding is None:
            return []
        own = self._own(tensor, group)
        return [holding.box] if own is None else difference(holding.box, own)

    def stored(self, graph: Graph, tensor: str, group: int) -> list[Region]:
        """Boxes of a group's share that must reach DDR."""
        own = self._own(tensor, group)
        if own is None:
            return []
        if tensor not in self.resident or any(b.tensor == tensor for b in graph.outputs):
            return [own]
        wanted: list[Region] = []
        for other in range(self.shares.groups):
            for box in self.missing(tensor, other) if other != group else ():
                common = intersection(box, own)
                if common is not None and common not in wanted:
                    wanted.append(common)
        return wanted

    def _own(self, tensor: str, group: int) -> Region | None:
        return self.shares.of[tensor][group] if tensor in self.shares.of else None


def slot_name(node: int, operand: str, slot: int) -> str:
    """Name of a streaming slot; `operand` is "in0", "in1", ... or "out"."""
    return f"node{node}.{operand}.{slot}"


def workspace_name(node: int) -> str:
    """Name of the memory that an operator's instructions use between each other."""
    return f"node{node}.workspace"


def place(graph: Graph, target: Target, shares: Shares, ring_bytes: int) -> Placement:
    """Decide residency, tiles and addresses.

    Raises:
        CompileError: an operator's smallest tile does not fit.
    """
    base = target.alignment
    ring = (base, base + ring_bytes)
    spilled: set[str] = set()
    work = {
        (i, g): region_cycles(n, r, graph.types(n.inputs), graph.tensors[n.outputs[0]], target)
        for i, n in enumerate(graph.nodes)
        for g, r in enumerate(shares.of.get(n.outputs[0], ()))
        if r is not None
    }
    tiler = _Tiler(graph, target, ring_bytes, work)
    while True:
        draft = _draft(graph, shares, frozenset(graph.tensors) - spilled)
        outcome = _fit(graph, target, draft, ring, tiler)
        if isinstance(outcome, Placement):
            return replace(outcome, gave_up=bool(spilled))
        victim = _victim(graph, draft, outcome)
        if victim is None:
            node = graph.nodes[outcome.step]
            raise CompileError(
                f"{node.name}: its smallest tile needs more than the "
                f"{target.sram_bytes - ring[1]} bytes that {target.name} leaves for tensors",
                fix="choose a target with more SRAM or a smaller input",
                code="TW-3201",
            )
        spilled.add(victim)


def _draft(graph: Graph, shares: Shares, resident: frozenset[str]) -> Placement:
    """Holdings of the resident tensors."""
    boxes: dict[tuple[str, int], list[Region]] = {}
    steps: dict[tuple[str, int], list[int]] = {}
    for i, node in enumerate(graph.nodes):
        name = node.outputs[0]
        inputs, output = graph.types(node.inputs), graph.tensors[name]
        for g, region in enumerate(shares.of.get(name, ())):
            if region is None:
                continue
            boxes.setdefault((name, g), []).append(region)
            steps.setdefault((name, g), []).append(i)
            needs = operator_of(node).needs(region, inputs, output)
            for read, need in zip(node.inputs, needs, strict=True):
                boxes.setdefault((read, g), []).append(need)
                steps.setdefault((read, g), []).append(i)
    made = {n.outputs[0]: i for i, n in enumerate(graph.nodes) if n.outputs[0] in shares.of}
    holdings = {
        key: Holding(bounding(boxes[key]), min([*at, made.get(key[0], at[0])]), max(at))
        for key, at in steps.items()
        if key[0] in resident
    }
    return Placement(shares, resident, holdings, {})


@dataclass(frozen=True)
class Misfit:
    """A step at which a group's SRAM does not suffice."""

    step: int
    group: int


def _fit(
    graph: Graph,
    target: Target,
    draft: Placement,
    ring: tuple[int, int],
    tiler: _Tiler,
) -> Placement | Misfit:
    """Tiles and addresses for a draft, or where they do not fit."""
    live = [[0] * len(graph.nodes) for _ in range(draft.shares.groups)]
    for (name, g), holding in draft.holdings.items():
        size = _align(box_bytes(holding.box, graph.tensors[name]), target.alignment)
        for step in range(holding.first, holding.last + 1):
            live[g][step] += size
    tilings: dict[tuple[int, int], Tiling] = {}
    for i, g in tiler.work:
        room = target.sram_bytes - ring[1] - live[g][i]
        tiling = tiler.tile(draft, i, g, room) if room >= 0 else None
        if tiling is None:
            return Misfit(i, g)
        tilings[i, g] = tiling
    addresses: list[dict[str, int]] = []
    peak = ring[1]
    for g in range(draft.shares.groups):
        requests = list(_requests(graph, draft, tilings, g))
        placed = allocate(requests, ring[1], target.sram_bytes, target.alignment)
        if isinstance(placed, Overflow):
            worst = max(
                range(placed.request.first, placed.request.last + 1), key=lambda s: live[g][s]
            )
            return Misfit(worst, g)
        addresses.append(placed)
        peak = max([peak, *(placed[r.name] + r.bytes for r in requests)])
    return replace(draft, tilings=tilings, addresses=tuple(addresses), ring=ring, sram_bytes=peak)


class _Tiler:
    """Tilings of shares, remembered: giving up one tensor leaves most problems as they were."""

    def __init__(
        self, graph: Graph, target: Target, ring_bytes: int, work: dict[tuple[int, int], int]
    ) -> None:
        self.work = work
        self._graph = graph
        self._target = target
        self._constant_room = ring_bytes // 2
        self._known: dict[tuple[object, ...], Tiling | None] = {}

    def tile(self, draft: Placement, index: int, group: int, room: int) -> Tiling | None:
        """The best tiling of a group's share of a node in `room` bytes."""
        node = self._graph.nodes[index]
        streamed = tuple(n not in draft.resident for n in node.inputs)
        output_streamed = node.outputs[0] not in draft.resident
        if not any(streamed) and not output_streamed and not self._has_workspace(index):
            room = 0
        key = (index, group, streamed, output_streamed, room)
        if key not in self._known:
            share = draft.shares.of[node.outputs[0]][group]
            assert share is not None
            self._known[key] = choose_tiling(
                TilingProblem(
                    node=node,
                    inputs=tuple(self._graph.types(node.inputs)),
                    output=self._graph.tensors[node.outputs[0]],
                    share=share,
                    streamed=streamed,
                    output_streamed=output_streamed,
                    room=room,
                    constant_room=self._constant_room,
                    work=self.work[index, group],
                    target=self._target,
                )
            )
        return self._known[key]

    def _has_workspace(self, index: int) -> bool:
        node = self._graph.nodes[index]
        output = self._graph.tensors[node.outputs[0]]
        inputs = self._graph.types(node.inputs)
        return operator_of(node).workspace(whole(output.shape), inputs, output) > 0


def _requests(
    graph: Graph, draft: Placement, tilings: dict[tuple[int, int], Tiling], group: int
) -> Iterable[Request]:
    for (name, g), holding in draft.holdings.items():
        if g == group:
            size = box_bytes(holding.box, graph.tensors[name])
            yield Request(name, size, holding.first, holding.last)
    for (i, g), tiling in tilings.items():
        if g != group:
            continue
        slots = {f"in{k}": b for k, b in enumerate(tiling.input_bytes) if b}
        if tiling.output_bytes:
            slots["out"] = tiling.output_bytes
        for operand, size in slots.items():
            for slot in range(tiling.slots):
                yield Request(slot_name(i, operand, slot), size, i, i)
        if tiling.workspace_bytes:
            yield Request(workspace_name(i), tiling.workspace_bytes, i, i)


def _victim(graph: Graph, draft: Placement, misfit: Misfit) -> str | None:
    """The resident tensor to give up: the largest that merely waits, else the largest of all."""
    node = graph.nodes[misfit.step]
    live = {
        name: box_bytes(h.box, graph.tensors[name])
        for (name, g), h in draft.holdings.items()
        if g == misfit.group and h.first <= misfit.step <= h.last
    }
    waiting = {n: b for n, b in live.items() if n not in (*node.inputs, *node.outputs)}
    largest_used = max((b for n, b in live.items() if n not in waiting), default=0)
    pool = {n: b for n, b in waiting.items() if 2 * b >= largest_used} or live
    return max(pool, key=lambda n: (pool[n], n), default=None)


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def largest_constant_step(graph: Graph) -> int:
    """Bytes of constants of the most demanding smallest tile: what half a ring must hold."""
    most = 0
    for node in graph.nodes:
        output = graph.tensors[node.outputs[0]]
        region = whole(output.shape)
        for split in operator_of(node).splits(graph.types(node.inputs), output):
            region = _first_step(region, split)
        most = max(most, constant_bytes(operator_of(node), region))
    return most


def _first_step(region: Region, split: Split) -> Region:
    span = region[split.axis]
    return (
        *region[: split.axis],
        type(span)(0, min(split.step, span.stop)),
        *region[split.axis + 1 :],
    )
