"""Emission: every tile's transfers and instructions, in an order that is right by itself.

Within a node, each group loads what a tile needs, computes it and stores what must leave; then the
groups fetch from DDR what they hold of each other's shares.  Constants are loaded ahead, as far as
the ring allows without overtaking tiles that were not emitted yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.compiler.boxes import box_bytes, dense_strides, intersection, with_span
from tilewright.compiler.placement import Placement, slot_name, workspace_name
from tilewright.compiler.ring import Piece, Slot, lay_out_ring
from tilewright.compiler.shares import operator_of
from tilewright.compiler.synchronise import DDR, Access, Draft, Storage
from tilewright.graph import Graph, Node
from tilewright.ops.protocol import Region, Span, Tile, View, region_shape, strided_axes, whole
from tilewright.program.constants import ConstantImage
from tilewright.program.isa import Load, Store
from tilewright.targets import Target
from tilewright.targets.cost import cycles

PREFETCH_DISTANCE = 2
"""Constants are loaded ahead only over bytes whose last tile is at least this many tiles back."""


@dataclass(frozen=True)
class Memory:
    """What the schedule reads: graph, placement and DDR addresses.

    Args:
        homes: tensor -> DDR address, for tensors that have a home.
    """

    graph: Graph
    placement: Placement
    constants: ConstantImage
    homes: dict[str, int]
    target: Target


@dataclass(frozen=True)
class Place:
    """Where a box of a tensor lies, and the buffer that ordering is kept for.

    Args:
        reused: the buffer is a streaming slot, where different boxes take the same bytes.
    """

    view: View
    storage: Storage
    reused: bool

    def access(self, box: Region, *, writes: bool) -> Access:
        return Access(self.storage, None if self.reused else box, writes)


@dataclass
class _GroupState:
    """Progress of one group: the ring's queue and how many tiles were emitted.

    `credit_bytes` is what DDR can deliver to this group while the work emitted so far runs, less
    the constants loaded already: loading further ahead would delay what the next operator needs.
    """

    slots: list[Slot]
    next_slot: int = 0
    tiles: int = 0
    credit_bytes: float = 0.0
    loaded: dict[str, list[Slot]] = field(default_factory=dict)


def schedule(memory: Memory) -> list[Draft]:
    """All commands of the program, without waits."""
    return _Emitter(memory).run()


class _Emitter:
    """Appends commands; holds nothing but the memory's description and the groups' progress."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.graph = memory.graph
        self.placement = memory.placement
        self.drafts: list[Draft] = []
        self.groups = [
            _GroupState(
                lay_out_ring(
                    list(self._pieces(g)), *self.placement.ring, self.memory.target.alignment
                )
            )
            for g in range(self.placement.shares.groups)
        ]

    @property
    def _fair_rate(self) -> float:
        """DDR bytes per cycle of one group when all of them load."""
        return self.memory.target.ddr_bytes_per_cycle / len(self.groups)

    def run(self) -> list[Draft]:
        for index, node in enumerate(self.graph.nodes):
            if not node.inputs:
                continue
            for group in range(len(self.groups)):
                self._arrive(index, node, group)
                self._node(index, node, group)
            for group in range(len(self.groups)):
                self._fetch(index, node.outputs[0], group)
                self._prefetch(index, group)
        return self.drafts

    def _pieces(self, group: int) -> Iterable[Piece]:
        """Constants in the order of use; a tile that needs what the one before it did adds none."""
        sets: list[tuple[int, int, list[tuple[str, int, int]]]] = []
        number = 0
        for index, node in enumerate(self.graph.nodes):
            tiling = self.placement.tilings.get((index, group))
            for region in tiling.regions if tiling is not None else ():
                slices = [
                    (self._piece_key(node, name), source, size)
                    for name, source, size in self._constant_slices(node, region)
                ]
                if sets and sets[-1][2] == slices:
                    sets[-1] = (sets[-1][0], number, slices)
                else:
                    sets.append((number, number, slices))
                number += 1
        for first, last, slices in sets:
            for key, source, size in slices:
                yield Piece(key, source, size, first, last)

    def _piece_key(self, node: Node, constant: str) -> str:
        return f"{node.name}.{constant}"

    def _constant_slices(self, node: Node, region: Region) -> Iterable[tuple[str, int, int]]:
        for name, array in node.op.constant_arrays().items():
            rows = operator_of(node).constant_rows(name, region)
            row_bytes = array.nbytes // max(1, len(array))
            offset = self.memory.constants.offsets[node.name, name]
            yield name, offset + rows.start * row_bytes, rows.size * row_bytes

    def _node(self, index: int, node: Node, group: int) -> None:
        tiling = self.placement.tilings.get((index, group))
        if tiling is None:
            return
        state = self.groups[group]
        workspace = self._workspace(index, group)
        for k, region in enumerate(tiling.regions):
            slot = k % tiling.slots
            constants = self._constants(index, node, group, region)
            needs = operator_of(node).needs(
                region, self.graph.types(node.inputs), self.graph.tensors[node.outputs[0]]
            )
            inputs = [
                self._input(index, group, name, position, need, slot)
                for position, (name, need) in enumerate(zip(node.inputs, needs, strict=True))
            ]
            output = self._output(index, group, node.outputs[0], region, slot)
            addresses = {name: s.address for name, s in constants.items()}
            accesses = (
                *(p.access(need, writes=False) for p, need in zip(inputs, needs, strict=True)),
                *(
                    Access(self._ring_storage(group, s), None, writes=False)
                    for s in constants.values()
                ),
                output.access(region, writes=True),
                *(Access(s, None, writes=True) for s in workspace),
            )
            views = tuple(p.view for p in inputs)
            own = workspace[0].address if workspace else 0
            tile = Tile(region, output.view, views, addresses, own)
            for i, instruction in enumerate(operator_of(node).emit(tile)):
                first = k == 0 and i == 0
                self.drafts.append(Draft(group, instruction, accesses, index, first))
                state.credit_bytes += cycles(instruction, self.memory.target) * self._fair_rate
            self._store(index, node.outputs[0], group, region, output)
            state.tiles += 1

    def _constants(self, index: int, node: Node, group: int, region: Region) -> dict[str, Slot]:
        """The ring slots of a tile's constants, loaded now if they were not loaded ahead."""
        state = self.groups[group]
        while state.next_slot < len(state.slots):
            if state.slots[state.next_slot].piece.tile > state.tiles:
                break
            self._load_piece(index, group)
        found = {}
        for name, _, _ in self._constant_slices(node, region):
            key = self._piece_key(node, name)
            found[name] = next(
                s for s in state.loaded[key] if s.piece.tile <= state.tiles <= s.piece.last_tile
            )
        return found

    def _prefetch(self, index: int, group: int) -> None:
        state = self.groups[group]
        while state.next_slot < len(state.slots):
            slot = state.slots[state.next_slot]
            if slot.after_tile > state.tiles - PREFETCH_DISTANCE:
                break
            if slot.piece.bytes > state.credit_bytes:
                break
            self._load_piece(index, group)

    def _load_piece(self, index: int, group: int) -> None:
        state = self.groups[group]
        slot = state.slots[state.next_slot]
        state.next_slot += 1
        state.credit_bytes -= slot.piece.bytes
        state.loaded.setdefault(slot.piece.name, []).append(slot)
        load = Load(
            ddr=slot.piece.source,
            sram=slot.address,
            shape=(1, 1, 1, slot.piece.bytes),
            ddr_strides=(0, 0, 0),
            sram_strides=(0, 0, 0),
        )
        access = Access(self._ring_storage(group, slot), None, writes=True)
        self.drafts.append(Draft(group, load, (access,), index, first=False))

    def _ring_storage(self, group: int, slot: Slot) -> Storage:
        name = f"{slot.piece.name}#{slot.piece.tile}"
        return Storage(group, name, slot.address, slot.piece.bytes)

    def _input(
        self, index: int, group: int, name: str, position: int, need: Region, slot: int
    ) -> Place:
        """Where a tile finds one input; a streamed one is loaded into its slot first."""
        if name in self.placement.resident:
            return self._resident(group, name)
        size = self.placement.tilings[index, group].input_bytes[position]
        place = self._slot(group, name, slot_name(index, f"in{position}", slot), need, size)
        self._transfer(Load, index, group, name, need, place)
        return place

    def _output(self, index: int, group: int, name: str, region: Region, slot: int) -> Place:
        if name in self.placement.resident:
            return self._resident(group, name)
        size = self.placement.tilings[index, group].output_bytes
        return self._slot(group, name, slot_name(index, "out", slot), region, size)

    def _workspace(self, index: int, group: int) -> tuple[Storage, ...]:
        """The operator's own memory; none for most."""
        size = self.placement.tilings[index, group].workspace_bytes
        if not size:
            return ()
        name = workspace_name(index)
        return (Storage(group, name, self.placement.addresses[group][name], size),)

    def _resident(self, group: int, name: str) -> Place:
        """A tensor's holding."""
        tensor = self.graph.tensors[name]
        box = self.placement.holdings[name, group].box
        address = self.placement.addresses[group][name]
        strides = dense_strides(region_shape(box), tensor.dtype.bytes)
        storage = Storage(group, name, address, box_bytes(box, tensor))
        return Place(View(tensor, box, address, strides), storage, reused=False)

    def _slot(self, group: int, name: str, slot: str, region: Region, size: int) -> Place:
        """A box of a tensor alone in a streaming slot of `size` bytes."""
        tensor = self.graph.tensors[name]
        address = self.placement.addresses[group][slot]
        strides = dense_strides(region_shape(region), tensor.dtype.bytes)
        storage = Storage(group, slot, address, size)
        return Place(View(tensor, region, address, strides), storage, reused=True)

    def _home(self, name: str) -> Place:
        tensor = self.graph.tensors[name]
        view = View(
            tensor,
            whole(tensor.shape),
            self.memory.homes[name],
            dense_strides(tensor.shape, tensor.dtype.bytes),
        )
        return Place(view, Storage(DDR, name, view.address, tensor.bytes), reused=False)

    def _store(self, index: int, name: str, group: int, region: Region, place: Place) -> None:
        for wanted in self.placement.stored(self.graph, name, group):
            box = intersection(wanted, region)
            if box is not None:
                self._transfer(Store, index, group, name, box, place)

    def _arrive(self, index: int, node: Node, group: int) -> None:
        """Load resident inputs that no node makes, at their first use."""
        for name in dict.fromkeys(node.inputs):
            holding = self.placement.holdings.get((name, group))
            if (
                holding is not None
                and name not in self.placement.shares.of
                and holding.first == index
            ):
                self._fetch(index, name, group)

    def _fetch(self, index: int, name: str, group: int) -> None:
        """Load the boxes that a group holds of others' shares."""
        if name not in self.placement.resident:
            return
        for box in self.placement.missing(name, group):
            self._transfer(Load, index, group, name, box, self._resident(group, name))

    def _transfer(
        self,
        kind: type[Load] | type[Store],
        index: int,
        group: int,
        name: str,
        box: Region,
        place: Place,
    ) -> None:
        """Copy a box between DDR and SRAM, in as many commands as its axes need."""
        home_place, view = self._home(name), place.view
        home, loads = home_place.view, kind is Load
        accesses = (
            home_place.access(box, writes=not loads),
            place.access(box, writes=loads),
        )
        for part, outer, run, (ddr, sram) in _runs(box, home, view):
            command = kind(
                ddr=home.origin(part),
                sram=view.origin(part),
                shape=(*outer, run),
                ddr_strides=ddr,
                sram_strides=sram,
            )
            self.drafts.append(Draft(group, command, accesses, index, first=False))


def _runs(
    box: Region, home: View, view: View
) -> Iterable[tuple[Region, tuple[int, ...], int, list[tuple[int, ...]]]]:
    """A box as transfers of at most three strided axes of contiguous runs.

    Yields:
        the part of the box, extents of three outer axes, bytes of a run, the outer axes' strides
        in DDR and in SRAM.
    """
    shape = region_shape(box)
    run, inner = home.type.dtype.bytes, len(shape)
    while inner and (
        shape[inner - 1] == 1 or home.strides[inner - 1] == view.strides[inner - 1] == run
    ):
        run *= shape[inner - 1]
        inner -= 1
    try:
        outer, strides = strided_axes(
            shape[:inner], [home.strides[:inner], view.strides[:inner]], 3
        )
    except ValueError:
        axis = next(a for a, n in enumerate(shape) if n > 1)
        for at in range(box[axis].start, box[axis].stop):
            yield from _runs(with_span(box, axis, Span(at, at + 1)), home, view)
        return
    yield box, outer, run, strides
