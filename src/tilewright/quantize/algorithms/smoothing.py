"""Smoothing: scales move from the channels of a normalised tensor into the products that read it.

A normalisation's gamma and beta are divided by s[c] and row c of every weight behind it is
multiplied by it, so that outlier channels no longer set the 8-bit step of all (Xiao et al. 2023,
"SmoothQuant", eq. 4):  s = max|x|**a / max|w|**(1 - a), with the strength a of each normalisation
chosen by the error of its products' outputs on calibration samples.

Where something else reads the normalised tensor too (the skip of a post-norm network), the products
get a normalisation of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright import numerics
from tilewright.ops.pattern import FloatGraph, Site, attribute_int, attribute_ints, shape_of
from tilewright.quantize.algorithms.base import Changed
from tilewright.quantize.calibrate import Progress
from tilewright.quantize.probes import ProbedModel
from tilewright.quantize.sessions import Feeds, Session, ordered_map
from tilewright.quantize.sites import Partition, find_sites

FloatArray = npt.NDArray[np.float64]

STRENGTHS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)

ROWS = 512
"""Rows of a normalised tensor that strengths are compared on, over all samples together."""

NORMS = ("LayerNormalization", "RMSNormalization")

KEEPS_CHANNELS = (
    "Reshape", "Transpose", "Identity", "Slice", "Concat", "Split", "Gather", "Flatten",
    "Squeeze", "Unsqueeze",
)  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """A normalisation and the products that its scales can move into.

    Args:
        readers: the nodes next to it that lead to the products.
        shared: something else reads the normalised tensor as well.
    """

    norm: ir.Node
    products: tuple[Site, ...]
    readers: tuple[ir.Node, ...]
    shared: bool

    @property
    def name(self) -> str:
        return self.norm.outputs[0].name or ""


Factors = dict[str, FloatArray]
"""Name of a normalised tensor -> [C], the s of the module."""


def smooth(model: ir.Model, samples: Iterable[Feeds], progress: Progress | None = None) -> Changed:
    """Smooth every normalisation whose products gain by it.

    Args:
        model: canonical; left unchanged.
        samples: read once.
    """
    return with_factors(model, smoothing_factors(model, samples, progress))


def smoothing_factors(
    model: ir.Model, samples: Iterable[Feeds], progress: Progress | None = None
) -> Factors:
    """The factors of every normalisation whose products gain by them."""
    graph = FloatGraph(model.graph)
    places = _places(find_sites(graph))
    if not places:
        return {}
    seen = _observe(model, places, samples, progress)
    found = {place.name: _best_scale(place, seen[place.name], graph) for place in places}
    return {name: scale for name, scale in found.items() if scale is not None}


def with_factors(model: ir.Model, factors: Factors) -> Changed:
    """A copy of the model in which `smoothing_factors` have moved into the products."""
    if not factors:
        return Changed(model, ())
    copy = model.clone()
    places = _places(find_sites(FloatGraph(copy.graph)))
    own = 0
    for place in places:
        if place.name in factors:
            own += place.shared
            _apply(copy.graph, place, factors[place.name])
    note = f"smoothed {len(factors)} of {len(places)} normalisations into the products behind them"
    if own:
        note += f"; {own} of them were doubled, since a residual sum reads the original"
    return Changed(copy, (note,))


# Finding the places


def _places(partition: Partition) -> list[_Place]:
    found = []
    for node in (n for site in partition.sites for n in site.nodes if n.op_type in NORMS):
        place = _place(node, partition)
        if place is not None:
            found.append(place)
    return found


def _place(norm: ir.Node, partition: Partition) -> _Place | None:
    value = norm.outputs[0]
    if value.is_graph_output() or any(len(v.uses()) > 1 for v in norm.inputs[1:] if v is not None):
        return None
    direct = list(dict.fromkeys(use.node for use in value.uses()))
    whole = _behind(direct, value, partition)
    if whole is not None:
        return _Place(norm, whole, tuple(direct), False)
    good = [(n, p) for n in direct if (p := _behind([n], value, partition)) is not None]
    if not good:
        return None
    products = {id(s): s for _, sites in good for s in sites}
    return _Place(norm, tuple(products.values()), tuple(n for n, _ in good), True)


def _behind(
    readers: Sequence[ir.Node], value: ir.Value, partition: Partition
) -> tuple[Site, ...] | None:
    """The products that `value` reaches through `readers`; None if it reaches anything else."""
    channels = shape_of(value)[-1]
    reached = {value}
    products: dict[int, Site] = {}
    for node in _behind_node(value.producer()):
        read = [v for v in node.inputs if v in reached]
        if not read or (value in read and node not in readers):
            continue
        site = partition.site_of.get(node)
        if site is not None and _takes_scale(site, channels, reached):
            products[id(site)] = site
        elif site is not None and _moves_rows(node, channels):
            data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            if len(read) != len(data) or any(v.is_graph_output() for v in node.outputs):
                return None
            reached.update(node.outputs)
        else:
            return None
    return tuple(products.values()) or None


def _behind_node(node: ir.Node | None) -> list[ir.Node]:
    assert node is not None and isinstance(node.graph, ir.Graph)
    nodes = list(node.graph)
    return nodes[nodes.index(node) + 1 :]


def _moves_rows(node: ir.Node, channels: int) -> bool:
    """Does the node only move whole rows of channels, which stay the last axis?"""
    if node.op_type not in KEEPS_CHANNELS:
        return False
    x = node.inputs[0]
    assert x is not None
    before = shape_of(x)
    if any(not shape_of(v) or shape_of(v)[-1] != channels for v in node.outputs):
        return False
    if before[-1] != channels:
        return False
    rank = len(before)
    match node.op_type:
        case "Transpose":
            return attribute_ints(node, "perm", tuple(range(rank))[::-1])[-1] == rank - 1
        case "Gather" | "Concat" | "Split":
            return attribute_int(node, "axis") % rank != rank - 1
    return True


def _takes_scale(site: Site, channels: int, reached: set[ir.Value]) -> bool:
    """Is it a matrix product over the last axis of a reached value, with a weight of its own?"""
    if site.kind != "Dense" or site.weights is None or site.inputs[0] not in reached:
        return False
    weight = site.weights.value
    return (
        len(weight.uses()) == 1
        and shape_of(weight)[1 - site.weights.axis] == channels
        and _runs_over_last(site)
    )


def _runs_over_last(site: Site) -> bool:
    assert site.weights is not None
    node = site.nodes[0]
    return node.op_type == "Gemm" or node.inputs[1] is site.weights.value


# What the samples show


@dataclass
class _Seen:
    """Per channel lows and highs over all samples, and some rows."""

    low: FloatArray
    high: FloatArray
    rows: npt.NDArray[np.float32]


def _observe(
    model: ir.Model,
    places: Sequence[_Place],
    samples: Iterable[Feeds],
    progress: Progress | None,
) -> dict[str, _Seen]:
    probed = ProbedModel(model)
    for place in places:
        probed.expose(place.name)
    session = Session(probed.model)
    lows: dict[str, list[FloatArray]] = {p.name: [] for p in places}
    highs: dict[str, list[FloatArray]] = {p.name: [] for p in places}
    rows: dict[str, list[npt.NDArray[np.float32]]] = {p.name: [] for p in places}
    names = list(lows)

    def run(feeds: Feeds) -> dict[str, npt.NDArray[np.float32]]:
        found = session.run(feeds)
        return {name: found[name].reshape(-1, found[name].shape[-1]) for name in names}

    for done, found in enumerate(ordered_map(run, samples), 1):
        for name, table in found.items():
            lows[name].append(table.min(axis=0).astype(np.float64))
            highs[name].append(table.max(axis=0).astype(np.float64))
            rows[name].append(_spread(table, ROWS // 8))
        if progress is not None:
            progress("smoothing", done, None)
    return {
        name: _Seen(
            np.min(lows[name], axis=0),
            np.max(highs[name], axis=0),
            _spread(np.concatenate(rows[name]), ROWS),
        )
        for name in names
    }


def _spread(table: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """At most `count` rows, evenly spaced."""
    step = -(-len(table) // count)
    return table[::step].copy()


# Choosing and applying a scale


def _best_scale(place: _Place, seen: _Seen, graph: FloatGraph) -> FloatArray | None:
    """The scale with the smallest output error; None where no scale beats none."""
    weights = [_matrix(site, graph) for site in place.products]
    reach = np.maximum(np.abs(seen.low), np.abs(seen.high))
    tops = np.max([np.abs(w).max(axis=1) for w in weights], axis=0)
    alive = (reach > 0) & (tops > 0)
    if not alive.any():
        return None
    x = seen.rows.astype(np.float64)
    exact = [x @ w for w in weights]
    best, least = None, _error(x, weights, exact, seen, np.ones_like(reach))
    for strength in STRENGTHS:
        scale = np.ones_like(reach)
        scale[alive] = reach[alive] ** strength / tops[alive] ** (1 - strength)
        scale[alive] /= np.exp(np.log(scale[alive]).mean())
        error = _error(x, weights, exact, seen, scale)
        if error < least:
            best, least = scale, error
    return best


def _matrix(site: Site, graph: FloatGraph) -> FloatArray:
    """The weight as [in, out]."""
    assert site.weights is not None
    array = graph.constant(site.weights.value)
    assert array is not None
    return (array.T if site.weights.axis == 0 else array).astype(np.float64)


def _error(
    x: FloatArray,
    weights: Sequence[FloatArray],
    exact: Sequence[FloatArray],
    seen: _Seen,
    scale: FloatArray,
) -> float:
    """Relative squared error of all products with operands rounded to 8 bits."""
    low, high = float((seen.low / scale).min()), float((seen.high / scale).max())
    step, zero = numerics.affine_parameters(min(low, 0.0), max(high, 0.0), 0, 255)
    rounded = (np.clip(np.rint(x / scale / step) + zero, 0, 255) - zero) * step
    total = 0.0
    for w, y in zip(weights, exact, strict=True):
        scaled = w * scale[:, None]
        steps = np.maximum(np.abs(scaled).max(axis=0) / 127, np.finfo(np.float32).tiny)
        made = rounded @ (np.rint(scaled / steps) * steps)
        total += float(((made - y) ** 2).sum() / max((y**2).sum(), 1e-30))
    return total


def _apply(graph: ir.Graph, place: _Place, scale: FloatArray) -> None:
    norm = _doubled(graph, place) if place.shared else place.norm
    for value in norm.inputs[1:3]:
        if value is not None:
            _rescale(value, 1.0 / scale)
    for site in place.products:
        assert site.weights is not None
        _rescale(site.weights.value, scale if site.weights.axis == 0 else scale[:, None])


def _rescale(value: ir.Value, factor: FloatArray) -> None:
    assert value.const_value is not None
    array = (value.const_value.numpy().astype(np.float64) * factor).astype(np.float32)
    value.const_value = ir.Tensor(array, name=value.name)


def _doubled(graph: ir.Graph, place: _Place) -> ir.Node:
    """A copy of the normalisation, with constants of its own, for the readers that lead on."""
    norm, base = place.norm, place.name
    constants: list[ir.Value | None] = []
    for value in norm.inputs[1:]:
        if value is None:
            constants.append(None)
            continue
        assert value.const_value is not None
        name = f"{value.name}_smoothed"
        copy = ir.Value(
            name=name,
            shape=value.shape,
            type=value.type,
            const_value=ir.Tensor(value.const_value.numpy(), name=name),
        )
        graph.register_initializer(copy)
        constants.append(copy)
    node = ir.node(
        norm.op_type,
        [norm.inputs[0], *constants],
        dict(norm.attributes),
        name=f"{norm.name}_smoothed",
    )
    node.metadata_props.update(norm.metadata_props)
    output = node.outputs[0]
    output.name = f"{base}_smoothed"
    output.type, output.shape = norm.outputs[0].type, norm.outputs[0].shape
    graph.insert_after(norm, node)
    for reader in place.readers:
        for i, value in enumerate(reader.inputs):
            if value is norm.outputs[0]:
                reader.replace_input_with(i, output)
    return node
