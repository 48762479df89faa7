"""Splitting each operator over the groups: which group makes which part of which output.

A share costs the slowest group's work or the constants that all groups load, whichever is more
(constants are loaded ahead), and what groups hand to each other through DDR.  How much of that
hides behind work is only known once everything is scheduled, so it is tried with several weights
and the compiler keeps the program that runs fastest.  For each weight, shares are chosen in
execution order and then revised, given their neighbours', until none changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.boxes import (
    box_bytes,
    dense_strides,
    difference,
    even_spans,
    with_span,
)
from tilewright.graph import Graph, Node, TensorType
from tilewright.ops.protocol import NpuOperator, Region, Tile, View, region_shape, whole
from tilewright.targets import Target
from tilewright.targets.cost import cycles

SWEEPS = 4
"""Revisions of all shares; they rarely change after the second."""


EXCHANGE_FACTORS = (2.0, 1.0, 4.0)
"""Weights of exchanges, from keeping work even to keeping exchanges rare."""

EXCHANGE_CYCLES = 600
"""A store, a wait and a load before the next operator can start."""

Share = tuple[Region | None, ...]
"""The part of a tensor that each group makes; None where it makes nothing."""


@dataclass(frozen=True)
class Shares:
    """The share of every tensor that an NPU operator makes, by tensor name.

    Tensors that are graph inputs or constants have none: they lie in DDR from the start.
    """

    groups: int
    of: dict[str, Share]


def operator_of(node: Node) -> NpuOperator:
    assert isinstance(node.op, NpuOperator), f"{node.name} is not an NPU operator"
    return node.op


def share_out(graph: Graph, target: Target, groups: int) -> list[Shares]:
    """The distinct choices that the weights lead to; one when there is one group."""
    costs = _OptionCosts(graph, target, groups)
    found: list[Shares] = []
    for factor in EXCHANGE_FACTORS if groups > 1 else EXCHANGE_FACTORS[:1]:
        shares = Shares(groups, _Chooser(costs, factor).run())
        if shares not in found:
            found.append(shares)
    return found


@dataclass(frozen=True)
class _Option:
    """A share of one node: cycles of the slowest group, cycles of DDR for constants."""

    share: Share
    work: float
    constants: float


class _OptionCosts:
    """What the options of each node cost alone, and what neighbours' options cost together."""

    def __init__(self, graph: Graph, target: Target, groups: int) -> None:
        self.graph = graph
        self.target = target
        self.options = {
            n.outputs[0]: [self._option(n, s) for s in _options(graph, n, groups)]
            for n in graph.nodes
            if n.inputs
        }
        self._exchanges: dict[tuple[str, Share, tuple[Share | None, ...]], float] = {}

    def _option(self, node: Node, share: Share) -> _Option:
        inputs, output = self.graph.types(node.inputs), self.graph.tensors[node.outputs[0]]
        regions = [r for r in share if r is not None]
        work = max(region_cycles(node, r, inputs, output, self.target) for r in regions)
        constants = sum(constant_bytes(operator_of(node), r) for r in regions)
        return _Option(share, work, constants / self.target.ddr_bytes_per_cycle)

    def exchange(self, node: Node, chosen: dict[str, Share]) -> float:
        """Cycles until every group has what it reads of the others' shares."""
        key = (node.name, chosen[node.outputs[0]], tuple(chosen.get(n) for n in node.inputs))
        if key not in self._exchanges:
            self._exchanges[key] = self._exchange(node, chosen)
        return self._exchanges[key]

    def _exchange(self, node: Node, chosen: dict[str, Share]) -> float:
        inputs, output = self.graph.types(node.inputs), self.graph.tensors[node.outputs[0]]
        traffic = 0
        for group, region in enumerate(chosen[node.outputs[0]]):
            if region is None:
                continue
            needs = operator_of(node).needs(region, inputs, output)
            for name, tensor, need in zip(node.inputs, inputs, needs, strict=True):
                if name not in chosen:
                    continue
                own = chosen[name][group]
                missing = [need] if own is None else difference(need, own)
                traffic += 2 * sum(box_bytes(m, tensor) for m in missing)
        return EXCHANGE_CYCLES + traffic / self.target.ddr_bytes_per_cycle if traffic else 0.0


class _Chooser:
    """The choice under one weight of exchanges."""

    def __init__(self, costs: _OptionCosts, exchange_factor: float) -> None:
        self.costs = costs
        self.graph = costs.graph
        self.exchange_factor = exchange_factor
        self.chosen: dict[str, Share] = {}

    def run(self) -> dict[str, Share]:
        nodes = [n for n in self.graph.nodes if n.inputs]
        for node in nodes:
            self._choose(node, [])
        for _ in range(SWEEPS):
            readers = {n.name: self._readers(n) for n in nodes}
            changes = [self._choose(n, readers[n.name]) for n in nodes]
            if not any(changes):
                break
        return self.chosen

    def _readers(self, node: Node) -> list[Node]:
        return [self.graph.nodes[i] for i in self.graph.consumers[node.outputs[0]]]

    def _choose(self, node: Node, readers: list[Node]) -> bool:
        """Take the cheapest option given the neighbours; did it change?"""
        name = node.outputs[0]
        before = self.chosen.get(name)
        costs = []
        for option in self.costs.options[name]:
            self.chosen[name] = option.share
            exchange = sum(self.costs.exchange(n, self.chosen) for n in (node, *readers))
            costs.append(max(option.work, option.constants) + self.exchange_factor * exchange)
        self.chosen[name] = self.costs.options[name][costs.index(min(costs))].share
        return self.chosen[name] != before


def _options(graph: Graph, node: Node, groups: int) -> list[Share]:
    output = graph.tensors[node.outputs[0]]
    box = whole(output.shape)
    alone: Share = (box, *(None,) * (groups - 1))
    if groups == 1:
        return [alone]
    options = []
    for split in operator_of(node).splits(graph.types(node.inputs), output):
        spans = even_spans(output.shape[split.axis], groups, split.step)
        if len(spans) > 1:
            parts: list[Region | None] = [with_span(box, split.axis, s) for s in spans]
            options.append(tuple(parts + [None] * (groups - len(parts))))
    return [*options[:3], alone]


def constant_bytes(op: NpuOperator, region: Region) -> int:
    """Bytes of constants that one tile needs."""
    total = 0
    for name, array in op.constant_arrays().items():
        rows = op.constant_rows(name, region)
        total += rows.size * (array.nbytes // max(1, len(array)))
    return total


def region_cycles(
    node: Node, region: Region, inputs: list[TensorType], output: TensorType, target: Target
) -> int:
    """Engine cycles of a region emitted as one tile."""
    op = operator_of(node)
    needs = op.needs(region, inputs, output)

    def view(tensor: TensorType, box: Region) -> View:
        return View(tensor, box, 0, dense_strides(region_shape(box), tensor.dtype.bytes))

    tile = Tile(
        region,
        view(output, region),
        tuple(view(t, n) for t, n in zip(inputs, needs, strict=True)),
        dict.fromkeys(op.constant_arrays(), 0),
    )
    return sum(cycles(instruction, target) for instruction in op.emit(tile))
