"""Canonical float ONNX and samples to QDQ ONNX: the stages in order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from tilewright.graph import Encoding
from tilewright.ops.pattern import FloatGraph, Site
from tilewright.quantize.algorithms.smoothing import smoothing_factors
from tilewright.quantize.bias_correction import correct_biases, with_zero_biases
from tilewright.quantize.calibrate import (
    Calibration,
    Progress,
    calibrate,
    calibration_warnings,
)
from tilewright.quantize.encodings import assign_encodings
from tilewright.quantize.observers import OBSERVERS, TensorStatistics
from tilewright.quantize.outputs import cut_mixed_outputs
from tilewright.quantize.preparation import Prepared, prepare
from tilewright.quantize.qdq import Quantization, write_qdq
from tilewright.quantize.ranges import Range
from tilewright.quantize.report import CpuRow, QuantizationReport
from tilewright.quantize.scheme import Scheme
from tilewright.quantize.score_ranges import cut_masks
from tilewright.quantize.sessions import Feeds
from tilewright.quantize.sites import Partition
from tilewright.quantize.weights import QuantizedProduct, quantize_product

METADATA = "pkg.tilewright."

LARGEST_RATIO = 2.0**21
"""Of an accumulator's step to the result's; the arithmetic ends at 2**22 (section 2)."""


@dataclass(frozen=True)
class Quantized:
    """A QDQ model and how it came about."""

    model: ir.Model
    report: QuantizationReport


def calibrate_model(
    model: ir.Model,
    samples: Iterable[Feeds],
    scheme: Scheme,
    *,
    progress: Progress | None = None,
) -> Calibration:
    """Run the samples through a canonical float model and keep what quantization needs of them.

    Args:
        model: left unchanged.
        samples: feeds by input name; iterated up to three times, in the same order each time.  An
            iterator, which can be read once only, is held in memory.
        scheme: its observers, algorithms and `residual_stream` count.  Types do not: the result
            serves every scheme that differs in nothing else.
        progress: called after every sample with the stage, samples done and samples in all.

    Raises:
        UnsupportedError: no node of the model can run on the NPU.
        DataError: there are no samples, or one does not feed the model.
        QuantizationError: tensors that are not finite.
        ConfigError: an override names nothing in the model.
    """
    _, calibration = _calibrated(model, _repeatable(samples), scheme, progress)
    return calibration


def _calibrated(
    model: ir.Model, samples: Iterable[Feeds], scheme: Scheme, progress: Progress | None
) -> tuple[Prepared, Calibration]:
    prepared = prepare(model, scheme, lambda m: smoothing_factors(m, samples, progress))
    values, probes, ends = prepared.values, prepared.probes, prepared.ends
    found = calibrate(
        prepared.model, samples, values, probes, ends, prepared.scheme, prepared.scores, progress
    )
    return prepared, replace(found, smoothing=prepared.smoothing)


def _repeatable(samples: Iterable[Feeds]) -> Iterable[Feeds]:
    return list(samples) if isinstance(samples, Iterator) else samples


def quantize_model(
    model: ir.Model,
    samples: Iterable[Feeds],
    scheme: Scheme,
    *,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> Quantized:
    """Calibrate and quantize a canonical float model.

    Args:
        model: left unchanged.
        samples: as in `calibrate_model`; bias correction reads them once more.
        scheme: types and algorithms.
        calibration: what `calibrate_model` found for this model and these samples, with a scheme
            that agrees in what it reads; the float model is then not run.
        progress: as in `calibrate_model`.

    Raises:
        TilewrightError: as `calibrate_model` does.
    """
    clock = _Clock()
    samples = _repeatable(samples)
    if calibration is None:
        with clock.stage("calibrate"):
            prepared, calibration = _calibrated(model, samples, scheme, progress)
    else:
        factors = calibration.smoothing
        with clock.stage("prepare"):
            prepared = prepare(model, scheme, lambda _: factors)
    model, scheme, graph = prepared.model, prepared.scheme, prepared.graph
    notes = list(prepared.notes)
    with clock.stage("ranges"):
        ranges = {
            n: _range(calibration.statistics[n], s, scheme) for n, s in prepared.values.items()
        }
        cut_masks(prepared.scores, ranges, calibration.statistics)
        partition, cuts = cut_mixed_outputs(prepared.partition, ranges, graph)
        notes += cuts
        encodings, products = _numbers(partition, ranges, scheme, graph, prepared.wide)
    notes += _raised(products)
    changes: dict[str, float] = {}
    metadata = _metadata(scheme, calibration.samples)
    probes = [p for p in prepared.probes if p.site.name in products]
    if probes:
        with clock.stage("correct biases"):
            numbers = Quantization(encodings, with_zero_biases(products, probes, encodings))
            draft = _draft(model, partition, numbers)
            found = correct_biases(
                draft, samples, probes, prepared.ends, calibration, numbers, progress
            )
            products, changes = found.products, found.changes
        if found.samples < calibration.samples:
            notes.append(f"bias correction used {found.samples} samples: more need too much memory")
    with clock.stage("write"):
        quantized = write_qdq(model, partition, Quantization(encodings, products), metadata)
    report = QuantizationReport(
        scheme.text(),
        calibration.samples,
        tuple(notes),
        tuple(calibration_warnings(calibration)),
        ranges,
        encodings,
        tuple(CpuRow(n.name or "", n.op_type, reason) for n, reason in partition.cpu),
        changes,
        clock.seconds,
    )
    return Quantized(quantized, report)


def _draft(model: ir.Model, partition: Partition, numbers: Quantization) -> ir.Model:
    """A QDQ model for corrections; 16-bit tensors stay float: faster, and no different there."""
    narrow = {name: e for name, e in numbers.encodings.items() if e.dtype.is_8_bit}
    return write_qdq(model, partition, Quantization(narrow, numbers.products), {})


@dataclass
class _Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def _range(statistics: TensorStatistics, site: Site | None, scheme: Scheme) -> Range:
    choice = scheme.observer_of(site)
    kind = scheme.activation_type(site)
    return OBSERVERS[choice.name].range(statistics, kind, choice)


def _numbers(
    partition: Partition,
    ranges: dict[str, Range],
    scheme: Scheme,
    graph: FloatGraph,
    wide: frozenset[str],
) -> tuple[dict[str, Encoding], dict[str, QuantizedProduct]]:
    """Encodings and constants; ranges too narrow for their product are widened in place."""
    encodings = assign_encodings(partition, ranges, scheme, graph, wide)
    products = quantize_products(partition, encodings, scheme, graph)
    narrow = too_narrow(partition, encodings, products)
    if not narrow:
        return encodings, products
    for name, width in narrow.items():
        ranges[name] = Range(ranges[name].low, max(ranges[name].high, ranges[name].low + width))
    return _numbers(partition, ranges, scheme, graph, wide)


def too_narrow(
    partition: Partition, encodings: dict[str, Encoding], products: dict[str, QuantizedProduct]
) -> dict[str, float]:
    """Results of products whose step is out of all proportion to the accumulator's: a dead layer.

    Returns:
        Value name -> the least width of its range, so that the rescale's ratio stays in bounds.
    """
    found = {}
    for site in partition.sites:
        if site.weights is None:
            continue
        target = site.outputs[0] if site.inner is None else site.inner
        name = target.name or ""
        step = float(encodings[site.inputs[0].name or ""].scale) * float(
            products[site.name].weight.scale.max()
        )
        if step > LARGEST_RATIO * encodings[name].scale:
            lo, hi = encodings[name].dtype.range
            found[name] = 2 * (hi - lo) * step / LARGEST_RATIO
    return found


def quantize_products(
    partition: Partition, encodings: dict[str, Encoding], scheme: Scheme, graph: FloatGraph
) -> dict[str, QuantizedProduct]:
    """Constants of all products, by the name of their site."""
    products = {}
    for site in partition.sites:
        if site.weights is None:
            continue
        weight, bias = graph.constant(site.weights.value), graph.constant(site.weights.bias)
        assert weight is not None
        products[site.name] = quantize_product(
            site,
            weight.astype(np.float64),
            None if bias is None else bias.astype(np.float64).reshape(-1),
            encodings[site.inputs[0].name or ""],
            scheme.weight_type(site),
        )
    return products


def _raised(products: dict[str, QuantizedProduct]) -> list[str]:
    raised = {name: p.raised for name, p in products.items() if p.raised}
    if not raised:
        return []
    most = max(raised, key=lambda name: raised[name])
    note = (
        f"the weight scales of {sum(raised.values())} channels in {len(raised)} layers were raised "
        f"so that their biases fit 32 bits; most of them, {raised[most]}, in {most}"
    )
    return [note]


def _metadata(scheme: Scheme, samples: int) -> dict[str, str]:
    return {
        METADATA + "scheme": scheme.text(),
        METADATA + "observer": scheme.observer.name,
        METADATA + "calibration_samples": str(samples),
        METADATA + "bias_correction": "sequential" if scheme.bias_correction else "none",
        METADATA + "equalization": "cross-layer" if scheme.equalization else "none",
    }
