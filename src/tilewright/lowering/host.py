"""The host model: the CPU nodes as they are, each island one node of our domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from tilewright.lowering.island import Island
from tilewright.lowering.partition import Partition
from tilewright.ops.pattern import reads_of

DOMAIN = "ai.tilewright"
ISLAND_OP = "NpuGraph"


def build_host(
    model: ir.Model, graph: ir.Graph, islands: Sequence[Island], parts: Partition
) -> ir.Model:
    """A float ONNX model with the interface of `graph`.

    Args:
        model: where opsets and metadata come from.
        graph: the graph without Q/DQ; it is read only.
        islands: one node each, in phase order.
    """
    values: dict[str, ir.Value] = {}

    def value_of(old: ir.Value) -> ir.Value:
        key = old.name or ""
        if key not in values:
            values[key] = ir.Value(
                name=old.name, type=old.type, shape=old.shape, const_value=old.const_value
            )
        return values[key]

    by_name = {v.name: v for v in graph.inputs}
    by_name.update({v.name: v for node in graph for v in node.outputs})
    nodes: list[tuple[int, ir.Node]] = []
    for phase, island in zip(parts.islands, islands, strict=True):
        inputs = [value_of(by_name[b.name]) for b in island.graph.inputs]
        outputs = [value_of(by_name[b.name]) for b in island.graph.outputs]
        nodes.append((phase, ir.Node(DOMAIN, ISLAND_OP, inputs, outputs=outputs, name=island.name)))
    for cpu in parts.cpu:
        node = cpu.node
        nodes.append((parts.phases[id(node)], _copy(node, value_of)))
    nodes.sort(key=lambda pair: pair[0])
    ordered = [n for _, n in nodes]
    used = [value_of(v) for n in ordered for v in reads_of(n)]
    used += [value_of(v) for v in graph.outputs]
    initializers = {v.name: v for v in used if v.const_value is not None and v.producer() is None}
    host_graph = ir.Graph(
        [value_of(v) for v in graph.inputs],
        [value_of(v) for v in graph.outputs],
        nodes=ordered,
        initializers=list(initializers.values()),
        name=graph.name,
        opset_imports={**model.graph.opset_imports, **({DOMAIN: 1} if islands else {})},
    )
    return ir.Model(host_graph, ir_version=model.ir_version, producer_name="tilewright")


def _copy(node: ir.Node, value_of: Callable[[ir.Value], ir.Value]) -> ir.Node:
    return ir.Node(
        node.domain,
        node.op_type,
        [None if v is None else value_of(v) for v in node.inputs],
        attributes=list(node.attributes.values()),
        overload=node.overload,
        outputs=[value_of(v) for v in node.outputs],
        name=node.name,
    )
