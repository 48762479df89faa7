"""What happens to the float model before calibration, and where it is looked at.

Algorithms change it without changing its function, streams get their precision, and operators are
matched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.errors import UnsupportedError
from tilewright.ops.pattern import FloatGraph, Site
from tilewright.quantize.algorithms import ALGORITHMS
from tilewright.quantize.algorithms.smoothing import Factors, with_factors
from tilewright.quantize.encodings import observed_values
from tilewright.quantize.output_correction import output_probes
from tilewright.quantize.probes import ProductProbe, product_probes
from tilewright.quantize.scheme import Scheme, check_overrides
from tilewright.quantize.score_ranges import Scores, find_scores
from tilewright.quantize.sites import Partition, find_sites, without_idle_movement
from tilewright.quantize.streams import convolves, find_streams, widen_streams


@dataclass(frozen=True)
class Prepared:
    """A float model that computes the same function and is ready to calibrate.

    Args:
        scheme: with the choices that depend on the network made.
        smoothing: factors that its normalisations were divided by.
        wide: names of values that keep 16 bits.
        values: tensors to observe -> the site that makes each, None for graph inputs.
        probes: products whose mean pre-activation is wanted.
        ends: those of them that end the network in a saturating function.
        scores: those of the observed values that only Softmax reads, and the masks added to them.
        notes: sentences on what was changed.
    """

    model: ir.Model
    scheme: Scheme
    smoothing: Factors
    wide: frozenset[str]
    graph: FloatGraph
    partition: Partition
    values: dict[str, Site | None]
    probes: list[ProductProbe]
    ends: list[ProductProbe]
    scores: Scores
    notes: tuple[str, ...]


def prepare(
    model: ir.Model, scheme: Scheme, smoothing_of: Callable[[ir.Model], Factors]
) -> Prepared:
    """Apply the algorithms of `scheme` that change the float model, and match its operators.

    Args:
        model: canonical; left unchanged.
        smoothing_of: the factors of a model's normalisations; called where the scheme smooths.

    Raises:
        UnsupportedError: no node of the model can run on the NPU.
        ConfigError: an override names nothing in the model.
    """
    check_overrides(scheme, list(model.graph))
    notes: list[str] = []
    if scheme.equalization:
        changed = ALGORITHMS["equalization"].apply(model)
        model = changed.model
        notes += changed.notes
    partition = find_sites(FloatGraph(model.graph))
    streams = find_streams(partition)
    observer = scheme.observer.of_network(transformer=bool(streams) and not convolves(partition))
    scheme = dataclasses.replace(scheme, observer=observer)
    factors: Factors = {}
    wide: frozenset[str] = frozenset()
    if streams and scheme.smoothing:
        factors = smoothing_of(model)
        changed = with_factors(model, factors)
        model = changed.model
        notes += changed.notes
    if streams and scheme.residual_stream != "same":
        widened = widen_streams(model)
        model, wide = widened.model, widened.wide
        notes.append(
            f"{len(wide)} tensors of the residual stream keep 16 bits; "
            f"{widened.narrowed} of them are rounded to 8 bits for the products that read them"
        )
    graph = FloatGraph(model.graph)
    partition = without_idle_movement(find_sites(graph))
    if not partition.sites:
        first = partition.cpu[0] if partition.cpu else None
        why = f"; {first.node.op_type}: {first.reason}" if first is not None else ""
        raise UnsupportedError(f"no node of the model can run on the NPU{why}", code="TW-3001")
    probes = product_probes(partition) if scheme.bias_correction else []
    values = observed_values(partition)
    return Prepared(
        model=model,
        scheme=scheme,
        smoothing=factors,
        wide=wide,
        graph=graph,
        partition=partition,
        values=values,
        probes=probes,
        ends=output_probes(partition, probes),
        scores=find_scores(partition, values),
        notes=tuple(notes),
    )
