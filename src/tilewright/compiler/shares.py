"""Splitting each operator over the groups: which group makes which part of which output.

Greedy in execution order by estimated cycles: the slowest group's work, the constants that each
group must load, and what groups must hand to each other through DDR.
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


def share_out(graph: Graph, target: Target, groups: int) -> Shares:
    """Choose a share for every node."""
    chosen: dict[str, Share] = {}
    for node in graph.nodes:
        if not node.inputs:
            continue
        options = _options(graph, node, groups)
        costs = [_cost(graph, node, option, chosen, target) for option in options]
        chosen[node.outputs[0]] = options[costs.index(min(costs))]
    return Shares(groups, chosen)


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


def _cost(
    graph: Graph, node: Node, share: Share, chosen: dict[str, Share], target: Target
) -> float:
    inputs, output = graph.types(node.inputs), graph.tensors[node.outputs[0]]
    work, traffic = 0, 0
    for group, region in enumerate(share):
        if region is None:
            continue
        op = operator_of(node)
        work = max(work, region_cycles(node, region, inputs, output, target))
        traffic += constant_bytes(op, region)
        needs = op.needs(region, inputs, output)
        for name, tensor, need in zip(node.inputs, inputs, needs, strict=True):
            own = chosen[name][group] if name in chosen else None
            missing = [need] if own is None else difference(need, own)
            traffic += 2 * sum(box_bytes(m, tensor) for m in missing)
    return work + traffic / target.ddr_bytes_per_cycle


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
