"""Changing an onnx-ir graph: constants, nodes with inferred types, replacement, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.importer.graphs import Array, subgraphs_of
from tilewright.importer.infer import output_types

SOURCE_KEY = "pkg.tilewright.source"

Attribute = int | float | str | Sequence[int] | Sequence[float] | ir.TensorProtocol


@dataclass(frozen=True)
class NearMiss:
    """A place that a rule nearly rewrote.

    Attributes:
        rule: the pass.
        node: names of the source nodes there, comma-joined.
        reason: why it stayed, as a clause.
    """

    rule: str
    node: str
    reason: str

    @staticmethod
    def at(node: ir.Node, rule: str, reason: str) -> NearMiss:
        return NearMiss(rule, joined_sources((node,)), reason)


@dataclass(frozen=True)
class PassResult:
    """What a pass did: its name, the number of places that it changed and those that it left."""

    name: str
    changes: int
    near_misses: tuple[NearMiss, ...] = ()


class Editor:
    """Edits one graph of a model and keeps value names unique in the whole model.

    Args:
        model: the model; names are collected from all its graphs.
        graph: the graph to edit; the main graph when omitted.
        opset: default-domain opset by which new nodes are typed.
    """

    def __init__(
        self, model: ir.Model, graph: ir.Graph | None = None, opset: int | None = None
    ) -> None:
        self.model = model
        self.graph = model.graph if graph is None else graph
        self.opset = model.opset_imports.get("", 21) if opset is None else opset
        self._names: set[str] | None = None
        self._fresh: set[ir.Value] = set()

    def unique(self, base: str) -> str:
        if self._names is None:  # most passes change nothing and need no names
            self._names = value_names(self.model.graph)
        name, count = base, 0
        while not name or name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def constant(self, array: Array, name: str) -> ir.Value:
        """Register an initializer with this content; `name` is made unique."""
        unique = self.unique(name)
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=unique)
        value = ir.Value(
            name=unique,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        self._fresh.add(value)
        return value

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        before: ir.Node,
        sources: Sequence[ir.Node],
        outputs: int = 1,
    ) -> list[ir.Value]:
        """Insert a default-domain node before `before`; its outputs are typed by inference."""
        base = sources[-1].name or op_type
        node = ir.node(op_type, inputs, attributes or None, num_outputs=outputs, name=base)
        for value in node.outputs:
            value.name = self.unique(f"{base}_output")
            self._fresh.add(value)
        node.metadata_props[SOURCE_KEY] = joined_sources(sources)
        self.graph.insert_before(before, node)
        for value, (type_, shape) in zip(
            node.outputs, output_types(node, self.opset) or (), strict=False
        ):
            value.type, value.shape = type_, shape
        return list(node.outputs)

    def replace(self, old: ir.Value, new: ir.Value) -> bool:
        """Let `new` stand for `old` everywhere and drop the nodes that only made `old`.

        A value made by this editor takes the old one's name, so tensors keep theirs through
        rewrites. A graph output keeps its name always; False (and nothing done) when that cannot
        be: its new value is a graph input, a constant or an output already.
        """
        producer = old.producer()
        if old.is_graph_output():
            if new.is_graph_output() or new.is_graph_input() or new.producer() is None:
                return False
            if new.graph is not old.graph:
                return False
        takes_name = old.is_graph_output() or new in self._fresh
        old_name = old.name
        if new.type is None:
            new.type = old.type
        if new.shape is None:
            new.shape = old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if takes_name and old_name:
            old.name = self.unique(old_name)
            new.name = old_name
            self._fresh.discard(new)
        if producer is not None:
            self.discard(producer)
        return True

    def discard(self, node: ir.Node) -> None:
        """Remove the node if nothing reads it, then its producers that became useless."""
        stack = [node]
        while stack:
            dead = stack.pop()
            if dead.graph is not self.graph:
                continue
            if any(value.uses() or value.is_graph_output() for value in dead.outputs):
                continue
            makers = [value.producer() for value in captured_values(dead)]
            self.graph.remove(dead, safe=True)
            stack.extend(maker for maker in makers if maker is not None)


def captured_values(node: ir.Node) -> list[ir.Value]:
    """The values that the node's inputs name, in order, without omitted ones."""
    return [value for value in node.inputs if value is not None]


def joined_sources(nodes: Iterable[ir.Node]) -> str:
    """Names of the model's own nodes that these nodes come from, comma-joined, each once."""
    names: dict[str, None] = {}
    for node in nodes:
        for name in node.metadata_props.get(SOURCE_KEY, node.name or "").split(","):
            if name:
                names[name] = None
    return ",".join(names)


def value_names(graph: ir.Graph) -> set[str]:
    """All value names in the graph and the graphs below it."""
    names = {value.name for value in graph.inputs if value.name}
    names.update(graph.initializers)
    for node in graph:
        names.update(value.name for value in node.outputs if value.name)
        for subgraph in subgraphs_of(node):
            names |= value_names(subgraph)
    return names
