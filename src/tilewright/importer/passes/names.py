"""Every node gets a unique, non-empty name; for values the editor sees to it throughout."""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.edit import PassResult
from tilewright.importer.graphs import subgraphs_of

NAME = "names"


def run(model: ir.Model) -> PassResult:
    return PassResult(NAME, _name_nodes(model.graph, set()))


def _name_nodes(graph: ir.Graph, taken: set[str]) -> int:
    changes = 0
    for index, node in enumerate(graph):
        base = node.name or f"{node.op_type}_{index}"
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        if name != node.name:
            node.name = name
            changes += 1
        for subgraph in subgraphs_of(node):
            changes += _name_nodes(subgraph, taken)
    return changes
