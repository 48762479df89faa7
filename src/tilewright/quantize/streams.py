"""The residual stream of a transformer keeps 16 bits; matrix products read 8-bit copies of it.

A few channels of the stream reach a hundred times the median one, and every normalisation reads the
stream: on a MiniLM, 8 bits there alone cost 10 dB.  16 bits cost vector work and bytes, but no
matrix work: what a product reads is rounded to 8 bits first, by an Identity that this module puts
before it, which becomes a rescale.

The stream is what normalisations read, and backwards from there through additions and movement; one
over too many values to take 16 bits reads a copy too.
The state that a recurrent layer carries from step to step is treated alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.ops.movement import NARROWED
from tilewright.ops.pattern import WIDE, FloatGraph, Site
from tilewright.quantize.sites import MOVEMENT, Partition

NORMALISATIONS = ("LayerNorm", "RmsNorm", "GroupNorm")
"""Kinds of sites that read the stream."""

RUN_TIME_PRODUCTS = ("MatMul", "Attention")
"""Kinds of sites that multiply matrices without constant weights."""


@dataclass(frozen=True)
class Streams:
    """A model whose residual streams are marked.

    Args:
        model: with an Identity wherever a stream is narrowed; the model that was given if nowhere.
        wide: names of the values that keep 16 bits.
        narrowed: how many Identity nodes were put in.
    """

    model: ir.Model
    wide: frozenset[str]
    narrowed: int


CONVOLUTIONS = ("Conv", "ConvTranspose")


def convolves(partition: Partition) -> bool:
    """Are most of the network's multiplications those of convolutions?"""
    total = sum(site.macs for site in partition.sites)
    return 2 * sum(s.macs for s in partition.sites if s.kind in CONVOLUTIONS) > total


def find_streams(partition: Partition) -> frozenset[str]:
    """Names of the values of all residual streams."""
    found: set[str] = set()
    norms = [s for s in partition.sites if s.kind in NORMALISATIONS and not s.narrow_inputs]
    waiting = [v for s in norms for v in s.inputs]
    found.update(v.name or "" for s in partition.sites for v in s.outputs if _carried(v))
    while waiting:
        value = waiting.pop()
        name, site = value.name or "", partition.made_by(value)
        if name in found or value.const_value is not None:
            continue
        found.add(name)
        if site is not None and (site.kind == "Add" or site.rule in MOVEMENT):
            waiting += site.inputs
    return frozenset(found)


def _carried(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is not None and WIDE in producer.metadata_props


def widen_streams(model: ir.Model) -> Streams:
    """Find the streams of a canonical float model, and narrow what its products read of them."""
    from tilewright.quantize.sites import find_sites

    copy = model.clone()
    partition = find_sites(FloatGraph(copy.graph))
    wide = find_streams(partition)
    count = 0
    for value in _values(copy.graph):
        if (value.name or "") not in wide or partition.made_by(value) is None:
            continue
        readers = [n for n in _readers(value) if _narrow(n, partition, wide)]
        if readers:
            _narrow_copy(copy.graph, value, readers)
            count += 1
    return Streams(copy if count else model, wide, count)


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


def _readers(value: ir.Value) -> list[ir.Node]:
    return list(dict.fromkeys(use.node for use in value.uses()))


def _narrow(node: ir.Node, partition: Partition, wide: frozenset[str]) -> bool:
    """Does `node` want 8 bits, as products do, or only move values to nodes that all do?"""
    site = partition.site_of.get(node)
    if site is None:
        return False
    if multiplies(site) or site.narrow_inputs:
        return True
    if site.rule not in MOVEMENT or any((v.name or "") in wide for v in site.outputs):
        return False
    readers = [n for v in site.outputs for n in _readers(v)]
    return bool(readers) and all(_narrow(n, partition, wide) for n in readers)


def multiplies(site: Site) -> bool:
    """Is the site a matrix product?"""
    return site.weights is not None or site.kind in RUN_TIME_PRODUCTS


def _narrow_copy(graph: ir.Graph, value: ir.Value, readers: Iterable[ir.Node]) -> None:
    name = f"{value.name}_narrow"
    node = ir.node("Identity", [value], name=name)
    node.metadata_props[NARROWED] = "1"
    output = node.outputs[0]
    output.name, output.type, output.shape = name, value.type, value.shape
    producer = value.producer()
    assert producer is not None
    graph.insert_after(producer, node)
    for reader in readers:
        for i, read in enumerate(reader.inputs):
            if read is value:
                reader.replace_input_with(i, output)
