"""Sequential bias correction: each product's mean output becomes that of the float model again.

Rounding weights and activations shifts channel means, and the shifts add up from layer to layer.
Products are corrected in order; the input of each is made by the layers before it as they will be
shipped, already corrected and on real codes:

    bias[o] = mean of the float pre-activation - mean of (weights * codes)[o]

over samples and positions.  Only the mean patch of the quantized input is needed for the second
term (`patches`), so a layer runs once over the samples, after its own correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from tilewright.graph import Encoding
from tilewright.ops.pattern import shape_of
from tilewright.quantize.calibrate import Calibration, Progress
from tilewright.quantize.output_correction import OutputError
from tilewright.quantize.patches import mean_output, patch_rule
from tilewright.quantize.probes import ProductProbe
from tilewright.quantize.qdq import Quantization
from tilewright.quantize.sessions import Array, Feeds, Session, ordered_map
from tilewright.quantize.stages import StagedModel, Tap
from tilewright.quantize.weights import FloatArray, QuantizedProduct, bias_codes

MEMORY = 300 * 2**20
"""Bytes of codes held between two stages at most; fewer samples are used when they need more."""


@dataclass(frozen=True)
class Corrected:
    """Products with corrected biases.

    Args:
        products: all of them, by the name of their site.
        changes: site name -> largest change of a bias, in units of its float value.
        samples: how many were used.
    """

    products: dict[str, QuantizedProduct]
    changes: dict[str, float]
    samples: int


def with_zero_biases(
    products: Mapping[str, QuantizedProduct],
    probes: Sequence[ProductProbe],
    encodings: Mapping[str, Encoding],
) -> dict[str, QuantizedProduct]:
    """The products, each of the probed ones with a bias: there must be one to correct."""
    filled = dict(products)
    for probe in probes:
        product = filled[probe.site.name]
        if product.float_bias is None:
            channels = shape_of(probe.node.outputs[0])[probe.axis]
            x = encodings[probe.site.inputs[0].name or ""]
            filled[probe.site.name] = with_bias(product, np.zeros(channels), x)
    return filled


def with_bias(product: QuantizedProduct, bias: FloatArray, x: Encoding) -> QuantizedProduct:
    """The product with another bias [C] and its codes, which a 16-bit input `x` does not have."""
    codes = None if x.dtype.bytes > 1 else bias_codes(bias, x, product.weight)
    return replace(product, bias=codes, float_bias=bias)


def correct_biases(
    model: ir.Model,
    samples: Iterable[Feeds],
    probes: Sequence[ProductProbe],
    ends: Sequence[ProductProbe],
    calibration: Calibration,
    numbers: Quantization,
    progress: Progress | None = None,
) -> Corrected:
    """Correct the biases of all probed products.

    Args:
        model: the QDQ model of `numbers`, each probed product with a bias.
        samples: those of the calibration.
        probes: of the float model; nodes keep their names in the QDQ model.
        ends: those of them that end the network in a saturating function.
        calibration: with the mean float pre-activation of every probe.
    """
    run = _Correction(model, probes, ends, calibration, numbers)
    stages = run.staged.stages
    for number, stage in enumerate(stages):
        for name in stage.products:
            run.correct(name)
        run.run_stage(number, samples)
        if progress is not None:
            progress("correct biases", number + 1, len(stages))
    for name in list(run.patches):
        run.correct(name)
    return Corrected(run.products, run.changes, len(run.used))


class _Correction:
    """The state between stages: corrected products, codes of every sample, mean patches."""

    def __init__(
        self,
        model: ir.Model,
        probes: Sequence[ProductProbe],
        ends: Sequence[ProductProbe],
        calibration: Calibration,
        numbers: Quantization,
    ) -> None:
        self.nodes = {n.name or "": n for n in model.graph}
        self.probes = {p.node.name or "": p for p in probes}
        self.means = calibration.means
        self.exact = calibration.pre_activations
        self.errors = {p.output: OutputError(p) for p in ends}
        self.encodings = numbers.encodings
        self.products = dict(numbers.products)
        self.changes: dict[str, float] = {}
        self.replaced: dict[str, Array] = {}
        self.patches: dict[str, FloatArray] = {}
        self.staged = StagedModel(model, [self._tap(n) for n in self.probes], list(self.errors))
        most = MEMORY // max(self.staged.bytes_per_sample(), 1)
        self.used = _spread(calibration.samples, max(1, most))
        self.held: list[dict[str, Array]] = []

    def _tap(self, name: str) -> Tap:
        node = self.nodes[name]
        weight = self.probes[name].site.weights
        assert weight is not None
        at = next(
            i
            for i, v in enumerate(self.probes[name].node.inputs[:2])
            if v is not None and v is not weight.value
        )
        x = node.inputs[at]
        assert x is not None
        return Tap(name, x.name or "", patch_rule(self.probes[name].node, at))

    def correct(self, name: str) -> None:
        """Give one product the bias that makes its mean output that of the float model."""
        probe, patch = self.probes[name], self.patches.pop(name)
        site = probe.site
        product = self.products[site.name]
        assert product.float_bias is not None
        weight = product.weight.real().astype(np.float64)
        wanted = self.means[probe.output][self.used].astype(np.float64).mean(axis=0)
        bias = wanted - mean_output(probe.node, weight, patch)
        if probe.node.op_type == "MatMul":
            bias = bias + product.float_bias
        self.changes[site.name] = float(np.abs(bias - product.float_bias).max(initial=0.0))
        x = self.encodings[site.inputs[0].name or ""]
        corrected = with_bias(product, bias, x)
        self.products[site.name] = corrected
        stored = self._bias_constant(probe)
        content = bias.astype(np.float32) if corrected.bias is None else corrected.bias.codes
        self.replaced[stored.name or ""] = content.reshape(shape_of(stored))

    def _bias_constant(self, probe: ProductProbe) -> ir.Value:
        """The initializer of a product's bias in the QDQ model: its codes, or float."""
        node = self.nodes[probe.node.name or ""]
        if node.op_type == "MatMul":
            node = self.nodes[probe.site.nodes[1].name or ""]
            made = self.nodes[probe.node.name or ""].outputs[0]
            value = next(v for v in node.inputs if v is not made)
        else:
            value = node.inputs[2]
        assert value is not None
        producer = value.producer()
        if producer is not None:
            value = producer.inputs[0]
            assert value is not None
        return value

    def run_stage(self, number: int, samples: Iterable[Feeds]) -> None:
        """Run one stage over all samples; keep its codes and the mean patches of its taps."""
        stages = self.staged.stages
        stage = stages[number]
        session = Session(self.staged.sub_model(stage, self.replaced))
        later = {name for s in stages[number + 1 :] for name in s.inputs}
        if number == 0:
            chosen = set(self.used)
            picked = [(i, f) for i, f in enumerate(samples) if i in chosen]
            self.held = [dict(f) for _, f in picked]
        total: dict[str, FloatArray] = {}
        for i, found in enumerate(ordered_map(session.run, self.held)):
            for tap in stage.taps:
                patch = found.pop(f"patch:{tap.node}").astype(np.float64)
                patch = patch.mean(axis=0) if patch.ndim > 1 else patch
                total[tap.node] = total.get(tap.node, np.zeros_like(patch)) + patch
            for name in stage.results:
                self._compare(name, self.used[i], found.pop(name))
            self.held[i] = {n: a for n, a in {**self.held[i], **found}.items() if n in later}
        for name in stage.results:
            self._shift(self.errors[name])
        self.patches.update((name, value / len(self.held)) for name, value in total.items())

    def _compare(self, name: str, sample: int, quantized: Array) -> None:
        if sample < len(self.exact[name]):
            self.errors[name].add(self.exact[name][sample], quantized)

    def _shift(self, errors: OutputError) -> None:
        site = errors.probe.site
        product = self.products[site.name]
        assert product.float_bias is not None
        bias = product.float_bias + errors.shift
        self.products[site.name] = with_bias(
            product, bias, self.encodings[site.inputs[0].name or ""]
        )


def _spread(count: int, limit: int) -> list[int]:
    """`limit` increasing indices below `count`, evenly spaced."""
    return [i * count // limit for i in range(limit)] if limit < count else list(range(count))
