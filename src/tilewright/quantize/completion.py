"""Encodings that a QDQ file leaves open.

Movement passes encodings forwards, a Concat where its inputs agree; a FIXED function gives its own;
a value read by movement alone takes the encoding behind it.  A result of a product that nobody
quantized (NNCF leaves the network's outputs float) gets s16 with the scale `bound / 32767`, where
`bound` is the largest |value| that the weights allow for any input codes: no result can saturate.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tilewright import numerics
from tilewright.graph import DType, Encoding
from tilewright.ops.pattern import FloatGraph, ScaleRule, Site
from tilewright.quantize.ranges import ActivationType, Range, real_range, with_zero
from tilewright.quantize.sites import Partition, match_sites


def complete(graph: FloatGraph) -> FloatGraph:
    """The graph with encodings for every value that the rules of the module decide."""
    assert graph.encodings is not None
    known = dict(graph.encodings)
    while True:
        before = len(known)
        partition = match_sites(FloatGraph(graph.graph, dict(known), graph.constants))
        for site in partition.sites:
            _forwards(site, known)
        for site in reversed(partition.sites):
            _backwards(site, partition, known)
        if len(known) == before:
            for site in partition.sites:
                _open_product(site, graph, known)
        if len(known) == before:
            return dataclasses.replace(graph, encodings=known)


def _forwards(site: Site, known: dict[str, Encoding]) -> None:
    open_outputs = [v for v in site.outputs if (v.name or "") not in known]
    inputs = [known.get(v.name or "") for v in site.inputs]
    present = [e for e in inputs if e is not None]
    if not open_outputs or len(present) != len(inputs) or not present:
        return
    found: Encoding | None = None
    if site.rule is ScaleRule.PASSED:
        found = present[0]
    elif site.rule is ScaleRule.SHARED:
        # Where they differ, no scale was meant for the result: the Concat was left in float.
        found = present[0] if len(set(present)) == 1 else None
    elif site.rule is ScaleRule.FIXED and site.fixed is not None:
        narrow = next((e.dtype for e in present if e.dtype.is_8_bit), DType.U8)
        found = ActivationType(narrow).encode(Range(*site.fixed))
    if found is not None:
        known.update((v.name or "", found) for v in open_outputs)


def _backwards(site: Site, partition: Partition, known: dict[str, Encoding]) -> None:
    """The input of movement takes the output's encoding where all its readers agree."""
    if site.rule is not ScaleRule.PASSED:
        return
    value = site.inputs[0]
    if (value.name or "") in known or value.is_graph_output():
        return
    behind: set[Encoding | None] = set()
    for reader in partition.readers(value):
        if reader is None or reader.rule is not ScaleRule.PASSED:
            return
        behind.update(known.get(o.name or "") for o in reader.outputs)
    if len(behind) == 1 and None not in behind:
        known[value.name or ""] = next(e for e in behind if e is not None)


def _open_product(site: Site, graph: FloatGraph, known: dict[str, Encoding]) -> None:
    if site.weights is None or site.inner is not None or len(site.inputs) != 1:
        return
    (value,), (x,) = site.outputs, site.inputs
    encoding = known.get(x.name or "")
    if (value.name or "") in known or encoding is None:
        return
    bound = accumulator_bound(site, graph, encoding)
    if bound is not None:
        scale = numerics.symmetric_scale(bound, 32767)
        known[value.name or ""] = Encoding(DType.S16, scale, 0)


def accumulator_bound(site: Site, graph: FloatGraph, x: Encoding) -> float | None:
    """The largest |value| that a product can make from any input codes; None without codes."""
    assert site.weights is not None
    constant = graph.constants.get(site.weights.value.name or "")
    if constant is None:
        return None
    weight = np.moveaxis(constant.real(), site.weights.axis, 0).astype(np.float64)
    flat = weight.reshape(len(weight), -1)
    reals = real_range(x)
    positive, negative = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    high = positive * reals.high + negative * reals.low
    low = positive * reals.low + negative * reals.high
    bias = graph.constant(site.weights.bias)
    if bias is not None:
        shift = bias.reshape(-1, len(weight)).astype(np.float64)
        high, low = high + shift.max(axis=0), low + shift.min(axis=0)
    return with_zero(float(low.min()), float(high.max())).reach
