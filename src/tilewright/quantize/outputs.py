"""The end of the network: what takes 16 bits there, and where a joined output must be cut.

The *tail* is the movement (Concat, Reshape, Transpose, ...) between the last computed tensors and
the network's outputs.  Where a Concat in it joins tensors whose ranges differ by more than
`LARGEST_RATIO` (boxes in pixels beside scores up to 1), one scale would leave the smaller one
without levels: the graph is cut before it, the Concat and what follows run on the CPU on float
values, and each branch keeps a scale of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from tilewright.ops.pattern import FloatGraph, ScaleRule, Site
from tilewright.quantize.ranges import Range, union
from tilewright.quantize.sites import Partition

LARGEST_RATIO = 16.0

CUT_REASON = "it joins tensors whose ranges differ too much for one scale"
BEHIND_REASON = "it follows a Concat that runs on the CPU"


def tail(partition: Partition) -> list[Site]:
    """Movement sites whose results reach nothing but network outputs and the CPU, last first."""
    found: list[Site] = []
    inside: set[int] = set()
    for site in reversed(partition.sites):
        if site.rule not in (ScaleRule.PASSED, ScaleRule.SHARED):
            continue
        readers = [r for v in site.outputs for r in partition.readers(v)]
        if all(r is None or id(r) in inside for r in readers):
            found.append(site)
            inside.add(id(site))
    return found


def leaves(partition: Partition) -> dict[ir.Value, Site]:
    """Computed tensors that end in network outputs or on the CPU, through the tail alone."""
    moving = {id(site) for site in tail(partition)}
    return {
        value: site
        for site in partition.sites
        if id(site) not in moving
        for value in site.outputs
        if all(r is None or id(r) in moving for r in partition.readers(value))
    }


def cut_mixed_outputs(
    partition: Partition, ranges: Mapping[str, Range], graph: FloatGraph
) -> tuple[Partition, list[str]]:
    """Move Concats of mixed range in the tail, and what follows them, to the CPU.

    Args:
        ranges: value name -> range of every tensor that is not made by movement.

    Returns:
        The partition, and one sentence for each Concat that was cut off.
    """
    known = dict(ranges)
    inside = {id(site) for site in tail(partition)}
    cut: list[Site] = []
    notes: list[str] = []
    off: set[ir.Value] = set()
    for site in partition.sites:
        inputs = [_range_of(v, known, graph) for v in site.inputs]
        if site.rule is ScaleRule.PASSED and inputs[:1] != [None]:
            known.update((v.name or "", r) for v in site.outputs if (r := inputs[0]) is not None)
        elif site.rule is ScaleRule.FIXED and site.fixed is not None:
            known.update((v.name or "", Range(*site.fixed)) for v in site.outputs)
        elif site.rule is ScaleRule.SHARED and any(r is not None for r in inputs):
            joined = union(r for r in inputs if r is not None)
            known.update((v.name or "", joined) for v in site.outputs)
        if id(site) not in inside:
            continue
        ratio = _ratio(r for r in inputs if r is not None)
        if any(v in off for v in site.inputs):
            cut.append(site)
        elif site.rule is ScaleRule.SHARED and ratio > LARGEST_RATIO:
            cut.append(site)
            notes.append(
                f"{site.name}: joins tensors whose ranges differ {ratio:.3g} times; "
                "it runs on the CPU and each of its inputs keeps its own scale"
            )
        else:
            continue
        off.update(site.outputs)
    first = [s for s in cut if not any(v in off for v in s.inputs)]
    behind = [s for s in cut if s not in first]
    return partition.without(first, CUT_REASON).without(behind, BEHIND_REASON), notes


def _range_of(value: ir.Value, known: Mapping[str, Range], graph: FloatGraph) -> Range | None:
    found = known.get(value.name or "")
    constant = graph.constant(value) if found is None else None
    if constant is None or constant.size == 0:
        return found
    return Range(min(float(constant.min()), 0.0), max(float(constant.max()), 0.0))


def _ratio(ranges: Iterable[Range]) -> float:
    """Largest over smallest reach; a tensor of zeros fits any scale."""
    reaches = [r.reach for r in ranges if r.reach > 0]
    return max(reaches) / min(reaches) if reaches else 1.0
