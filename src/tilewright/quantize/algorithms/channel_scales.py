"""Scales per channel that move from a tensor into the matrix products that read it.

Dividing channel c of a tensor by s[c] and multiplying row c of every weight behind it by s[c]
changes nothing in float, and lets channels of unlike range share one 8-bit step.  s is searched as
in Xiao et al. 2023, "SmoothQuant", eq. 4:  s = max|x|**a / max|w|**(1 - a), with the strength a
chosen by the error of the products' outputs on calibration samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright import numerics
from tilewright.ops.pattern import FloatGraph, Site, attribute_int, attribute_ints, shape_of
from tilewright.quantize.calibrate import Progress
from tilewright.quantize.probes import ProbedModel
from tilewright.quantize.sessions import Feeds, Session, ordered_map
from tilewright.quantize.sites import Partition

FloatArray = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float32]

STRENGTHS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)

ROWS = 256
"""Rows of a tensor that strengths are compared on, over all samples together."""

KEEPS_CHANNELS = (
    "Reshape", "Transpose", "Identity", "Slice", "Concat", "Split", "Gather", "Flatten",
    "Squeeze", "Unsqueeze",
)  # fmt: skip


def products_behind(
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


@dataclass
class Seen:
    """Per channel lows and highs over all samples, and some rows."""

    low: FloatArray
    high: FloatArray
    rows: npt.NDArray[np.float32]


def observe(
    model: ir.Model, names: Sequence[str], samples: Iterable[Feeds], progress: Progress | None
) -> dict[str, Seen]:
    """What the samples show of values whose last axis holds channels.

    Args:
        names: of values of `model`.
    """
    probed = ProbedModel(model)
    for name in names:
        probed.expose(name)
    session = Session(probed.model)
    lows: dict[str, list[FloatArray]] = {name: [] for name in names}
    highs: dict[str, list[FloatArray]] = {name: [] for name in names}
    rows: dict[str, list[npt.NDArray[np.float32]]] = {name: [] for name in names}

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
        name: Seen(
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


class Choice(NamedTuple):
    """A scale [C], and how many decibels of error the products' outputs lose by it."""

    scale: FloatArray
    gain: float


def best_scale(products: Sequence[Site], seen: Seen, graph: FloatGraph) -> Choice | None:
    """The scale with the smallest error of the products' outputs; None where none gains."""
    weights = [_matrix(site, graph) for site in products]
    reach = np.maximum(np.abs(seen.low), np.abs(seen.high))
    tops = np.max([np.abs(w).max(axis=1) for w in weights], axis=0).astype(np.float64)
    alive = (reach > 0) & (tops > 0)
    if not alive.any():
        return None
    x = seen.rows
    exact = [x @ w for w in weights]
    before = least = _error(x, weights, exact, seen, np.ones_like(reach))
    best: FloatArray | None = None
    for strength in STRENGTHS:
        scale = np.ones_like(reach)
        scale[alive] = reach[alive] ** strength / tops[alive] ** (1 - strength)
        scale[alive] /= np.exp(np.log(scale[alive]).mean())
        error = _error(x, weights, exact, seen, scale)
        if error < least:
            best, least = scale, error
    return None if best is None else Choice(best, 10 * float(np.log10(before / least)))


def _matrix(site: Site, graph: FloatGraph) -> Matrix:
    """The weight as [in, out]."""
    assert site.weights is not None
    array = graph.constant(site.weights.value)
    assert array is not None
    return (array.T if site.weights.axis == 0 else array).astype(np.float32)


def _error(
    x: Matrix,
    weights: Sequence[Matrix],
    exact: Sequence[Matrix],
    seen: Seen,
    scale: FloatArray,
) -> float:
    """Relative squared error of all products with operands rounded to 8 bits."""
    low, high = float((seen.low / scale).min()), float((seen.high / scale).max())
    step, zero = numerics.affine_parameters(min(low, 0.0), max(high, 0.0), 0, 255)
    codes = np.clip(np.rint(x / (scale * step).astype(np.float32)), -zero, 255 - zero)
    factor = scale.astype(np.float32)[:, None]
    total = 0.0
    for w, y in zip(weights, exact, strict=True):
        scaled = w * factor
        steps = np.maximum(np.abs(scaled).max(axis=0) / 127, np.finfo(np.float32).tiny)
        made = (codes @ np.rint(scaled / steps)) * (np.float32(step) * steps)
        noise = float(((made - y) ** 2).sum(dtype=np.float64))
        total += noise / max(float((y**2).sum(dtype=np.float64)), 1e-30)
    return total


def scale_products(products: Sequence[Site], scale: FloatArray) -> None:
    """Multiply the rows of the products' weights in place."""
    for site in products:
        assert site.weights is not None
        rescale_constant(site.weights.value, scale if site.weights.axis == 0 else scale[:, None])


def rescale_constant(value: ir.Value, factor: FloatArray) -> None:
    assert value.const_value is not None
    array = (value.const_value.numpy().astype(np.float64) * factor).astype(np.float32)
    value.const_value = ir.Tensor(array, name=value.name)
