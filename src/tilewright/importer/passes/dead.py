"""Nodes whose results nobody reads, and constants that no node reads, are removed."""

from __future__ import annotations

import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import subgraphs_of

NAME = "dead"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in reversed(list(model.graph)):
        if node.graph is not None and not any(
            value.uses() or value.is_graph_output() for value in node.outputs
        ):
            editor.discard(node)
            changes += 1
    changes += _drop_constants(model.graph)
    return PassResult(NAME, changes)


def _drop_constants(graph: ir.Graph) -> int:
    unused = [
        name
        for name, value in graph.initializers.items()
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input()
    ]
    for name in unused:
        graph.initializers.pop(name)
    for node in graph:
        for subgraph in subgraphs_of(node):
            _drop_constants(subgraph)
    return len(unused)
