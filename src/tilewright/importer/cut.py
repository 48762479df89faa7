"""The part of a model between named tensors."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tilewright.errors import ModelError, nearest
from tilewright.importer.edit import captured_values
from tilewright.importer.graphs import is_constant, static_shape, subgraphs_of
from tilewright.importer.passes import dead


def cut(model: ir.Model, start: Sequence[str], end: Sequence[str]) -> ir.Model:
    """A copy of the model from the tensors `start` to the tensors `end`.

    Args:
        model: a model whose inner tensors have known shapes (a canonical one).
        start: names that become the inputs, in this order; empty keeps the model's own.
        end: names that become the outputs, in this order; empty keeps the model's own.

    Raises: ModelError: an unknown name (with the nearest known one), a start tensor of unknown
        shape, or an end that depends on a model input which `start` does not cut off.
    """
    part = model.clone()
    graph = part.graph
    values = {value.name: value for value in graph.inputs if value.name}
    values |= {value.name: value for node in graph for value in node.outputs if value.name}
    starts = [_named(values, name) for name in start] or list(graph.inputs)
    ends = [_named(values, name) for name in end] or list(graph.outputs)
    needed = _needed_nodes(starts, ends, graph)
    new_inputs = [_as_input(value) for value in starts]
    for value, replacement in zip(starts, new_inputs, strict=True):
        if replacement is not value:
            value.replace_all_uses_with(replacement, replace_graph_outputs=True)
    ends = [new_inputs[starts.index(value)] if value in starts else value for value in ends]
    graph.inputs.clear()
    graph.inputs.extend(new_inputs)
    graph.outputs.clear()
    graph.outputs.extend(ends)
    graph.remove([node for node in reversed(list(graph)) if node not in needed], safe=True)
    dead.run(part)
    return part


def _named(values: dict[str, ir.Value], name: str) -> ir.Value:
    if name not in values:
        raise ModelError(
            f"the model has no tensor {name!r} to cut at", fix=nearest(name, values), code="TW-1140"
        )
    return values[name]


def _needed_nodes(
    starts: Sequence[ir.Value], ends: Sequence[ir.Value], graph: ir.Graph
) -> set[ir.Node]:
    needed: set[ir.Node] = set()
    stack = list(ends)
    seen: set[ir.Value] = set(starts)
    while stack:
        value = stack.pop()
        if value in seen or is_constant(value):
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            if value.is_graph_input() and value.graph is graph:
                raise ModelError(
                    f"the part to cut out still depends on the model's input {value.name!r}",
                    fix=f"add {value.name!r} to the start tensors, or start later",
                    code="TW-1141",
                )
            continue
        needed.add(node)
        stack.extend(captured_values(node))
        for subgraph in subgraphs_of(node):
            stack.extend(v for inner in subgraph.all_nodes() for v in captured_values(inner))
            stack.extend(subgraph.outputs)
    return {node for node in needed if node.graph is graph}


def _as_input(value: ir.Value) -> ir.Value:
    """The value itself if it is an input, else a new input of its name and shape."""
    if value.is_graph_input():
        return value
    if static_shape(value) is None or value.type is None:
        raise ModelError(
            f"the shape of tensor {value.name!r} is not known",
            fix="import the model before cutting it",
            code="TW-1142",
        )
    name = value.name
    value.name = f"{name}_uncut"
    return ir.Value(name=name, shape=value.shape, type=value.type)
