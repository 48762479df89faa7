"""QDQ ONNX to integer graphs, and the host model that holds them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright import graph as integer
from tilewright import numerics
from tilewright.lowering.host import build_host
from tilewright.lowering.island import Island
from tilewright.lowering.partition import CpuNode, Partition, partition
from tilewright.ops import catalog
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import Note, Site
from tilewright.quantize.sites import find_sites
from tilewright.quantize.strip import strip


@dataclass(frozen=True, eq=False)
class PixelInput:
    """Preprocessing that moves into the model (section 3 of the arithmetic).

    Args:
        values: float32 [256, channels], what byte v of stored channel c stands for.
        channels: source channel of each stored channel.
    """

    values: integer.Array
    channels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model ready to compile.

    Args:
        islands: integer graphs in execution order.
        host: float ONNX in which each island is one node of the domain `ai.tilewright`.
        cpu_nodes: what stays outside, with reasons.
        notes: what was changed of the quantized model, and what looks wrong in it.
    """

    islands: tuple[Island, ...]
    host: ir.Model
    cpu_nodes: tuple[CpuNode, ...]
    notes: tuple[Note, ...]


def lower(model: ir.Model, pixels: dict[str, PixelInput] | None = None) -> Lowered:
    """Bind every operator of a quantized model to its scales.

    Args:
        model: a QDQ model, ours or another tool's; it is not changed.
        pixels: built-in preprocessing by graph input.

    Raises:
        QuantizationError: scales or types that the arithmetic refuses.
    """
    stripped = strip(model)
    found = find_sites(stripped)
    cpu = [CpuNode(node, reason) for node, reason in found.cpu]
    parts = partition(stripped, found.sites, cpu)
    islands: list[Island] = []
    notes = list(stripped.notes)
    for i, (phase, sites) in enumerate(parts.islands.items()):
        builder = Builder(stripped)
        graph = _island(builder, f"npu{i}", sites, parts, phase, pixels or {})
        islands.append(Island(f"npu{i}", graph))
        notes += builder.notes
    host = build_host(model, stripped.graph, islands, parts)
    return Lowered(tuple(islands), host, parts.cpu, tuple(notes))


def _island(
    builder: Builder,
    name: str,
    sites: Sequence[Site],
    parts: Partition,
    phase: int,
    pixels: dict[str, PixelInput],
) -> integer.Graph:
    inside = {id(v) for s in sites for v in s.outputs}
    inputs: dict[str, integer.Border] = {}
    for site in sites:
        for value in site.inputs:
            key = value.name or ""
            if id(value) not in inside and key not in inputs:
                inputs[key] = _input(builder, value, pixels.get(key))
    for site in sites:
        builder.begin(site)
        catalog.bind(site, builder)
    leaving = [v for s in sites for v in s.outputs if _leaves(v, parts, phase)]
    outputs = [builder.output(v) for v in leaving]
    lowered = builder.graph(name, list(inputs.values()), outputs)
    integer.verify(lowered)
    return lowered


def _leaves(value: ir.Value, parts: Partition, phase: int) -> bool:
    """Is the value a graph output, or read by another island or by the CPU?

    Readers without a phase stand in subgraphs of CPU nodes.
    """
    return value.is_graph_output() or any(
        parts.phases.get(id(use.node)) != phase for use in value.uses()
    )


def _input(builder: Builder, value: ir.Value, pixel: PixelInput | None) -> integer.Border:
    if pixel is None:
        return builder.add_input(value)
    encoding = builder.encoding(value)
    lo, hi = encoding.dtype.range
    codes = numerics.quantize(pixel.values, encoding.scale, encoding.zero_point, lo, hi)
    table = np.ascontiguousarray(codes.astype(encoding.dtype.numpy))
    return builder.add_input(value, table, pixel.channels)
