"""Smoothing: outlier channels move from a tensor into the weights of the products that read it.

Of a normalisation, gamma and beta are divided by the scale.  Where something else reads the
normalised tensor too (the skip of a post-norm network), the products get a normalisation of their
own.

GELU and its like leave outliers as well; no constant in front of them can take a scale, so their
result keeps 16 bits and is multiplied on its way to 8.  Equalised ranges leave unseen outliers no
headroom: it is done only where the products' error falls by `WORTH_IT`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.ops.pattern import WIDE, FloatGraph, Site
from tilewright.quantize.algorithms.base import Changed
from tilewright.quantize.algorithms.channel_scales import (
    FloatArray,
    best_scale,
    observe,
    products_behind,
    rescale_constant,
    scale_products,
)
from tilewright.quantize.calibrate import Progress
from tilewright.quantize.encodings import unary_of
from tilewright.quantize.sessions import Feeds
from tilewright.quantize.sites import Partition, find_sites

NORMS = ("LayerNormalization", "RMSNormalization")

WORTH_IT = 4.0
"""Decibels.  On a MiniLM four of six GELUs gain 4.5 to 7, and the network 2.4; on a ViT-S one of
twelve does."""


@dataclass(frozen=True)
class _Place:
    """A tensor and the products that its scales can move into.

    Args:
        readers: the nodes next to it that lead to the products.
        shared: something else reads the tensor as well.
        least: gain, in dB, below which it stays as it is.
    """

    value: ir.Value
    products: tuple[Site, ...]
    readers: tuple[ir.Node, ...]
    shared: bool
    least: float

    @property
    def name(self) -> str:
        return self.value.name or ""

    @property
    def producer(self) -> ir.Node:
        node = self.value.producer()
        assert node is not None
        return node

    @property
    def is_norm(self) -> bool:
        return self.producer.op_type in NORMS


Factors = dict[str, FloatArray]
"""Name of a tensor -> [C], its scale."""


def smooth(model: ir.Model, samples: Iterable[Feeds], progress: Progress | None = None) -> Changed:
    """Smooth every tensor whose products gain by it.

    Args:
        model: canonical; left unchanged.
        samples: read once.
    """
    return with_factors(model, smoothing_factors(model, samples, progress))


def smoothing_factors(
    model: ir.Model, samples: Iterable[Feeds], progress: Progress | None = None
) -> Factors:
    """The scales of every tensor whose products gain by them."""
    graph = FloatGraph(model.graph)
    places = _places(find_sites(graph))
    if not places:
        return {}
    seen = observe(model, [p.name for p in places], samples, progress)
    factors = {}
    for place in places:
        best = best_scale(place.products, seen[place.name], graph)
        if best is not None and best.gain >= place.least:
            factors[place.name] = best.scale
    return factors


def with_factors(model: ir.Model, factors: Factors) -> Changed:
    """A copy of the model in which `smoothing_factors` have moved into the products."""
    if not factors:
        return Changed(model, ())
    copy = model.clone()
    places = _places(find_sites(FloatGraph(copy.graph)))
    chosen = [place for place in places if place.name in factors]
    for place in chosen:
        _apply(copy.graph, place, factors[place.name])
    norms, functions = [p for p in chosen if p.is_norm], [p for p in chosen if not p.is_norm]
    whole = sum(place.is_norm for place in places)
    note = f"smoothed {len(norms)} of {whole} normalisations into the products behind them"
    if any(place.shared for place in norms):
        own = sum(place.shared for place in norms)
        note += f"; {own} of them were doubled, since a residual sum reads the original"
    notes = [note] if norms else []
    if functions:
        notes.append(
            f"scaled the channels of {len(functions)} of {len(places) - whole} activation functions"
            " into the products behind them"
        )
    return Changed(copy, tuple(notes))


def _places(partition: Partition) -> list[_Place]:
    found = []
    for site in partition.sites:
        place = _function(site, partition)
        for node in site.nodes:
            if node.op_type in NORMS:
                place = _norm(node, partition)
        if place is not None:
            found.append(place)
    return found


def _norm(norm: ir.Node, partition: Partition) -> _Place | None:
    value = norm.outputs[0]
    if value.is_graph_output() or any(len(v.uses()) > 1 for v in norm.inputs[1:] if v is not None):
        return None
    direct = _readers(value)
    whole = products_behind(direct, value, partition)
    if whole is not None:
        return _Place(value, whole, direct, False, 0.0)
    good = [(n, p) for n in direct if (p := products_behind([n], value, partition)) is not None]
    if not good:
        return None
    products = {id(s): s for _, sites in good for s in sites}
    return _Place(value, tuple(products.values()), tuple(n for n, _ in good), True, 0.0)


def _function(site: Site, partition: Partition) -> _Place | None:
    """The result of a function fused behind a matrix product."""
    if site.kind != "Dense" or unary_of(site) is None:
        return None
    value = site.outputs[0]
    readers = _readers(value)
    products = None
    if not value.is_graph_output():
        products = products_behind(readers, value, partition)
    return None if products is None else _Place(value, products, readers, False, WORTH_IT)


def _readers(value: ir.Value) -> tuple[ir.Node, ...]:
    return tuple(dict.fromkeys(use.node for use in value.uses()))


def _apply(graph: ir.Graph, place: _Place, scale: FloatArray) -> None:
    if place.is_norm:
        norm = _doubled(graph, place) if place.shared else place.producer
        for value in norm.inputs[1:3]:
            if value is not None:
                rescale_constant(value, 1.0 / scale)
    else:
        _multiplied(graph, place, scale)
    scale_products(place.products, scale)


def _multiplied(graph: ir.Graph, place: _Place, scale: FloatArray) -> None:
    """Divide the value by `scale` for its readers; the value itself keeps 16 bits."""
    place.producer.metadata_props[WIDE] = "1"
    factor = _constant(graph, f"{place.name}_factor", (1.0 / scale).astype(np.float32))
    node = ir.node("Mul", [place.value, factor], name=f"{place.name}_smoothed")
    _insert(graph, node, place)


def _constant(graph: ir.Graph, name: str, array: npt.NDArray[np.float32]) -> ir.Value:
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.FLOAT),
        const_value=ir.Tensor(array, name=name),
    )
    graph.register_initializer(value)
    return value


def _insert(graph: ir.Graph, node: ir.Node, place: _Place) -> None:
    """Put `node` behind the place's producer, in front of its readers."""
    output = node.outputs[0]
    output.name = f"{place.name}_smoothed"
    output.type, output.shape = place.value.type, place.value.shape
    graph.insert_after(place.producer, node)
    for reader in place.readers:
        for i, value in enumerate(reader.inputs):
            if value is place.value:
                reader.replace_input_with(i, output)


def _doubled(graph: ir.Graph, place: _Place) -> ir.Node:
    """A copy of the normalisation, with constants of its own, for the readers that lead on."""
    norm = place.producer
    constants: list[ir.Value | None] = []
    for value in norm.inputs[1:]:
        if value is None:
            constants.append(None)
            continue
        assert value.const_value is not None
        array = value.const_value.numpy()
        constants.append(_constant(graph, f"{place.name}_{value.name}_smoothed", array))
    node = ir.node(
        norm.op_type,
        [norm.inputs[0], *constants],
        dict(norm.attributes),
        name=f"{norm.name}_smoothed",
    )
    node.metadata_props.update(norm.metadata_props)
    _insert(graph, node, place)
    return node
