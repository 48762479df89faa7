"""Calibration: the float model on all samples, and what its tensors did.

One pass finds ranges and mean pre-activations; observers that need histograms take a second pass,
in which the ranges are known.  Memory holds a few samples, a few numbers per tensor and sample, and
the histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from tilewright.data.checks import CalibrationWarning, dead_channels, range_set_by_one_sample
from tilewright.errors import DataError, QuantizationError
from tilewright.ops.pattern import Site
from tilewright.quantize.observers import OBSERVERS, Histogram, TensorStatistics
from tilewright.quantize.observers.base import FloatArray
from tilewright.quantize.probes import BINS, ProbedModel, ProductProbe, bins_of, never_negative
from tilewright.quantize.scheme import Scheme
from tilewright.quantize.score_ranges import Scores
from tilewright.quantize.sessions import Array, Feeds, Session, ordered_map

Progress = Callable[[str, int, int | None], None]
"""Called with the stage, samples done and samples in all (None: not known)."""

KEPT_BYTES = 64 * 2**20

LOW, HIGH, MEAN, CODES = (
    "tilewright.low:",
    "tilewright.high:",
    "tilewright.mean:",
    "tilewright.codes:",
)


@dataclass(frozen=True)
class Calibration:
    """What the samples showed.

    Args:
        samples: how many.
        statistics: value name -> ranges, and a histogram where one was asked for.
        means: output name of a product's node -> float32 [samples, C] mean over positions.
        pre_activations: output name of a product that ends the network in a saturating function ->
            its outputs on the first samples.
        channel_tops: value name of [N, C, H, W] -> [C] largest magnitude over all samples.
        smoothing: normalised tensor -> [C] factors that were moved behind it before.
    """

    samples: int
    statistics: dict[str, TensorStatistics]
    means: dict[str, Array]
    pre_activations: dict[str, list[Array]]
    channel_tops: dict[str, FloatArray]
    smoothing: dict[str, FloatArray] = field(default_factory=dict)


def calibrate(
    model: ir.Model,
    samples: Iterable[Feeds],
    values: dict[str, Site | None],
    products: Sequence[ProductProbe],
    ends: Sequence[ProductProbe],
    scheme: Scheme,
    scores: Scores,
    progress: Progress | None = None,
) -> Calibration:
    """Run the samples through the float model.

    Args:
        samples: read once, or twice where an observer needs histograms.
        values: tensors to observe -> the site that makes each, None for graph inputs.
        products: whose means are wanted.
        ends: those of them whose outputs are kept, in `KEPT_BYTES`.
        scores: values that are observed only as far as Softmax sees them.

    Raises:
        DataError: no samples, or a sample without one of the inputs.
        QuantizationError: a tensor holds NaN or infinite values; names it and the sample.
    """
    session = Session(_range_model(scores.probe(model), values, products, ends))
    collector = _Collector(values, products, ends)
    for index, (feeds, found) in enumerate(_run_all(session, samples, "calibrate", progress)):
        if not all(np.isfinite(array).all() for array in found.values() if array.dtype.kind == "f"):
            raise _not_finite(model, feeds, index)
        collector.add(found)
    if collector.count == 0:
        raise DataError(
            "there are no calibration samples", fix="give data with --calib", code="TW-1240"
        )
    result = collector.result()
    wanted = [
        name
        for name, site in values.items()
        if OBSERVERS[scheme.observer_of(site).name or "minmax"].needs_histogram(
            result.statistics[name]
        )
    ]
    return (
        _with_histograms(scores.probe(model), samples, result, wanted, progress)
        if wanted
        else result
    )


def _run_all(
    session: Session, samples: Iterable[Feeds], stage: str, progress: Progress | None
) -> Iterable[tuple[Feeds, dict[str, Array]]]:
    total = len(samples) if isinstance(samples, Sized) else None

    def run(feeds: Feeds) -> tuple[Feeds, dict[str, Array]]:
        missing = next((name for name in session.inputs if name not in feeds), None)
        if missing is not None:
            raise DataError(f"a sample has no value for input {missing!r}", code="TW-1231")
        return feeds, session.run(feeds)

    for done, result in enumerate(ordered_map(run, samples), 1):
        yield result
        if progress is not None:
            progress(stage, done, total)


def _range_model(
    probed: ProbedModel,
    values: dict[str, Site | None],
    products: Sequence[ProductProbe],
    ends: Sequence[ProductProbe],
) -> ir.Model:
    for name, site in values.items():
        if not never_negative(site):
            probed.lowest(name, LOW + name)
        probed.highest(name, HIGH + name)
    for product in products:
        probed.mean(product.output, product.axis, MEAN + product.output)
    for product in ends:
        probed.expose(product.output)
    return probed.model


class _Collector:
    """Sums up the outputs of a range model, sample by sample."""

    def __init__(
        self,
        values: dict[str, Site | None],
        products: Sequence[ProductProbe],
        ends: Sequence[ProductProbe],
    ) -> None:
        self.count = 0
        self.names = list(values)
        self.bounded = {n for n, s in values.items() if never_negative(s)}
        self.lows: list[list[float]] = []
        self.highs: list[list[float]] = []
        self.tops: dict[str, FloatArray] = {}
        self.means: dict[str, list[Array]] = {p.output: [] for p in products}
        self.kept: dict[str, list[Array]] = {p.output: [] for p in ends}
        self.kept_bytes = 0

    def add(self, found: dict[str, Array]) -> None:
        self.count += 1
        lows, highs = [], []
        for name in self.names:
            high = found[HIGH + name]
            low = None if name in self.bounded else found[LOW + name]
            highs.append(float(high.max()))
            lows.append(0.0 if low is None else float(low.min()))
            if high.ndim == 2:
                top = np.abs(high if low is None else np.maximum(np.abs(high), np.abs(low)))
                best = top.max(axis=0).astype(np.float64)
                self.tops[name] = np.maximum(self.tops.get(name, best), best)
        self.lows.append(lows)
        self.highs.append(highs)
        for name, means in self.means.items():
            mean = found[MEAN + name]
            means.append(mean.reshape(mean.shape[0], -1).mean(axis=0) if mean.ndim > 1 else mean)

        outputs = {name: found[name] for name in self.kept}
        size = sum(array.nbytes for array in outputs.values())
        if self.kept_bytes + size <= KEPT_BYTES:
            self.kept_bytes += size
            for name, array in outputs.items():
                self.kept[name].append(array)

    def result(self) -> Calibration:
        lows, highs = np.array(self.lows), np.array(self.highs)
        statistics = {
            name: TensorStatistics(lows[:, i], highs[:, i]) for i, name in enumerate(self.names)
        }
        means = {name: np.stack(rows) for name, rows in self.means.items()}
        return Calibration(self.count, statistics, means, self.kept, self.tops)


def _with_histograms(
    probed: ProbedModel,
    samples: Iterable[Feeds],
    found: Calibration,
    wanted: Sequence[str],
    progress: Progress | None,
) -> Calibration:
    for name in wanted:
        probed.codes(name, found.statistics[name].range, CODES + name)
    counts = {name: np.zeros(BINS, np.float64) for name in wanted}
    session = Session(probed.model)
    for _, outputs in _run_all(session, samples, "histograms", progress):
        for name in wanted:
            counts[name] += np.bincount(outputs[CODES + name].reshape(-1), minlength=BINS)[:BINS]
    statistics = dict(found.statistics)
    for name in wanted:
        width, zero = bins_of(found.statistics[name].range)
        low = (-0.5 - zero) * width
        histogram = Histogram(low, low + BINS * width, counts[name])
        old = statistics[name]
        statistics[name] = TensorStatistics(old.lows, old.highs, histogram)
    return replace(found, statistics=statistics)


def _not_finite(model: ir.Model, feeds: Feeds, index: int) -> QuantizationError:
    """The error that names the first tensor that is not finite."""
    probed = ProbedModel(model)
    names = [v.name or "" for n in probed.graph for v in n.outputs if v.dtype == ir.DataType.FLOAT]
    present = {v.name for v in probed.graph.outputs}
    probed.graph.outputs.extend(probed.values[n] for n in names if n not in present)
    found = Session(probed.model).run(feeds)
    inputs = [v.name or "" for v in model.graph.inputs]
    everything = {**{n: np.asarray(feeds[n]) for n in inputs}, **{n: found[n] for n in names}}
    bad = next(
        (n for n, a in everything.items() if a.dtype.kind == "f" and not np.isfinite(a).all()),
        "of the float model",
    )
    return QuantizationError(
        f"tensor {bad} holds NaN or infinite values on calibration sample {index}",
        fix="check that sample and the preprocessing, or export the model again",
        code="TW-3121",
    )


def calibration_warnings(found: Calibration) -> list[CalibrationWarning]:
    """Ranges that one sample alone sets, and channels that never were active."""
    names = list(found.statistics)
    lows = np.stack([found.statistics[n].lows for n in names], axis=1)
    highs = np.stack([found.statistics[n].highs for n in names], axis=1)
    warnings = range_set_by_one_sample(lows, highs, names)
    for name, tops in found.channel_tops.items():
        warning = dead_channels(tops, name)
        if warning is not None:
            warnings.append(warning)
    return warnings
