"""Which nodes of a model run on the NPU, and how they group into islands.

Nodes are ordered by phase: even phases run on the NPU, odd ones on the CPU, and a node's phase is
the smallest that lies behind everything it reads.  Each even phase is one island, so islands and
CPU nodes never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.ops.pattern import FloatGraph, ScaleRule, Site, reads_of


@dataclass(frozen=True)
class CpuNode:
    """A node that stays on the CPU, and the sentence that says why."""

    node: ir.Node
    reason: str

    @property
    def name(self) -> str:
        return self.node.name or self.node.outputs[0].name or self.node.op_type


@dataclass(frozen=True)
class Partition:
    """Sites of each island in execution order, CPU nodes, and the phase of every node.

    Args:
        islands: sites by phase.
        phases: id of an ONNX node -> phase.
    """

    islands: dict[int, tuple[Site, ...]]
    cpu: tuple[CpuNode, ...]
    phases: dict[int, int]


def partition(graph: FloatGraph, sites: Sequence[Site], cpu: Sequence[CpuNode]) -> Partition:
    """Group sites into islands; what cannot or need not run on the NPU goes to the CPU."""
    kept: list[Site] = []
    host = list(cpu)
    for site in sites:
        reason = _unscaled(graph, site)
        if reason is None:
            kept.append(site)
        else:
            host += [CpuNode(n, reason) for n in site.nodes]
    while True:
        phases = _phases(graph, kept)
        islands: dict[int, list[Site]] = {}
        for site in kept:
            islands.setdefault(phases[id(site.nodes[-1])], []).append(site)
        idle = {p for p, s in islands.items() if all(x.rule is ScaleRule.PASSED for x in s)}
        if not idle:
            break
        reason = "it only moves data between CPU nodes"
        host += [CpuNode(n, reason) for p in sorted(idle) for s in islands[p] for n in s.nodes]
        kept = [s for s in kept if phases[id(s.nodes[-1])] not in idle]
    order = {id(node): i for i, node in enumerate(graph.graph)}
    host.sort(key=lambda c: order[id(c.node)])
    return Partition({p: tuple(islands[p]) for p in sorted(islands)}, tuple(host), phases)


def _unscaled(graph: FloatGraph, site: Site) -> str | None:
    """Why a site cannot be bound: a tensor or weight that the file leaves in float."""
    for value in (*site.inputs, *site.outputs):
        if graph.encoding(value) is None:
            return f"tensor {value.name} is kept in float in the quantized model"
    if site.weights is not None and (site.weights.value.name or "") not in graph.constants:
        return f"its weight {site.weights.value.name} is kept in float in the quantized model"
    return None


def _phases(graph: FloatGraph, sites: Sequence[Site]) -> dict[int, int]:
    site_of = {id(n): s for s in sites for n in s.nodes}
    phases: dict[int, int] = {}
    for node in graph.graph:
        site = site_of.get(id(node))
        if site is not None and node is not site.nodes[-1]:
            continue
        inputs = site.inputs if site is not None else reads_of(node)
        on_cpu = site is None
        phase = 1 if on_cpu else 0
        for value in inputs:
            producer = value.producer()
            if producer is None:
                continue
            before = phases[id(producer)]
            phase = max(phase, before + (before % 2 != phase % 2))
        for covered in site.nodes if site is not None else (node,):
            phases[id(covered)] = phase
    return phases
