"""Which nodes become NPU operators and which stay on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from tilewright.ops.pattern import FloatGraph, Refusal, ScaleRule, Site

Matcher = Callable[[ir.Node, FloatGraph], Site | Refusal]


class CpuNode(NamedTuple):
    """A node that stays float, with the sentence that says why."""

    node: ir.Node
    reason: str


@dataclass(frozen=True)
class Partition:
    """Sites in an order in which they can run, and the nodes outside all of them.

    Every node of the graph is in exactly one site or in `cpu`.
    """

    sites: tuple[Site, ...]
    cpu: tuple[CpuNode, ...]

    @cached_property
    def site_of(self) -> dict[ir.Node, Site]:
        """The site that covers a node."""
        return {node: site for site in self.sites for node in site.nodes}

    def made_by(self, value: ir.Value) -> Site | None:
        """The site whose output `value` is; None for graph inputs, constants and CPU results."""
        producer = value.producer()
        return None if producer is None else self.site_of.get(producer)

    def readers(self, value: ir.Value) -> list[Site | None]:
        """The sites that read `value`, each once; None stands for CPU nodes and graph outputs."""
        found: dict[int, Site | None] = {}
        for use in value.uses():
            site = self.site_of.get(use.node)
            found[id(site)] = site
        if value.is_graph_output():
            found[id(None)] = None
        return list(found.values())

    def without(self, sites: Sequence[Site], reason: str) -> Partition:
        """The partition with `sites` moved to the CPU."""
        gone = {id(site) for site in sites}
        moved = [CpuNode(node, reason) for site in sites for node in site.nodes]
        kept = tuple(site for site in self.sites if id(site) not in gone)
        return Partition(kept, (*self.cpu, *moved))


MOVEMENT = (ScaleRule.PASSED, ScaleRule.SHARED)


def without_idle_movement(partition: Partition) -> Partition:
    """The partition without movement that only stands between CPU nodes.

    Quantizing it would cost accuracy and gain nothing.  Movement that meets a computing site, even
    through other movement, stays.
    """
    idle = {id(s): s for s in partition.sites if s.rule in MOVEMENT}
    computing = [s for s in partition.sites if s.rule not in MOVEMENT]
    while computing:
        met = {id(n): n for site in computing for n in _neighbours(site, partition)}
        computing = [idle.pop(key) for key in met if key in idle]
    return partition.without(list(idle.values()), "it only moves values between CPU nodes")


def _neighbours(site: Site, partition: Partition) -> list[Site]:
    makers = [partition.made_by(v) for v in site.inputs]
    readers = [r for v in (*site.inputs, *site.outputs) for r in partition.readers(v)]
    return [s for s in (*makers, *readers) if s is not None]


def find_sites(graph: FloatGraph) -> Partition:
    """Sites of a float graph, or of the result of `strip`.

    A site whose tensors or weights have no encoding in a stripped graph is a float part of that
    model and stays on the CPU.
    """
    partition = match_sites(graph)
    return partition if graph.encodings is None else _without_float_parts(partition, graph)


def match_sites(graph: FloatGraph, match: Matcher | None = None) -> Partition:
    """Match every node of the graph, in order.

    A pattern that starts late but covers earlier, smaller sites whole takes their place.

    Args:
        graph: canonical; float, or the result of `strip`.
        match: the matcher; the operator catalog's when omitted.
    """
    if match is None:
        from tilewright.ops import catalog

        match = catalog.match
    place = {node: i for i, node in enumerate(graph.graph)}
    covering: dict[ir.Node, Site] = {}
    refused: dict[ir.Node, str] = {}
    for node in place:
        if node in covering:
            continue
        found = match(node, graph)
        if isinstance(found, Refusal):
            refused[node] = found.reason
        elif not _claim(found, covering):
            refused[node] = "another operator takes a part of its pattern"
    sites = list({id(site): site for site in covering.values()}.values())
    sites.sort(key=lambda site: max(place[n] for n in site.nodes))
    cpu = tuple(CpuNode(n, refused[n]) for n in place if n not in covering)
    return Partition(tuple(sites), cpu)


def _claim(site: Site, covering: dict[ir.Node, Site]) -> bool:
    """Let `site` cover its nodes, if every site that it meets lies inside it and is smaller."""
    nodes = set(site.nodes)
    met = {id(covering[n]): covering[n] for n in site.nodes if n in covering}
    if any(not set(other.nodes) < nodes for other in met.values()):
        return False
    for node in site.nodes:
        covering[node] = site
    return True


def _without_float_parts(partition: Partition, graph: FloatGraph) -> Partition:
    sites: list[Site] = []
    cpu = list(partition.cpu)
    for site in partition.sites:
        missing = _missing_scale(site, graph)
        if missing is None:
            sites.append(site)
        else:
            cpu += [
                CpuNode(n, f"{missing} has no scale in the quantized model") for n in site.nodes
            ]
    return Partition(tuple(sites), tuple(cpu))


def _missing_scale(site: Site, graph: FloatGraph) -> str | None:
    for value in (*site.inputs, *site.outputs):
        if graph.encoding(value) is None:
            return f"its tensor {value.name}"
    if site.weights is not None and (site.weights.value.name or "") not in graph.constants:
        return f"its weight {site.weights.value.name}"
    return None
