"""The resolved scheme: every choice of types and algorithms, after target and configuration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from tilewright.config import CalibrationConfig, ObserverName, Override, QuantizationConfig
from tilewright.errors import ConfigError, nearest
from tilewright.graph import DType
from tilewright.ops.pattern import Site
from tilewright.quantize.ranges import S16, ActivationType

if TYPE_CHECKING:
    import onnx_ir as ir

    from tilewright.targets import NumericRules

DTYPES = {"u8": DType.U8, "s8": DType.S8, "s16": DType.S16}


@dataclass(frozen=True)
class WeightType:
    """How a constant operand is quantized.

    Args:
        dtype: s8 is symmetric, u8 asymmetric and per tensor.
        per_channel: one scale per output channel.
        power_of_two: scales are powers of two.
    """

    dtype: DType = DType.S8
    per_channel: bool = True
    power_of_two: bool = False


@dataclass(frozen=True)
class ObserverChoice:
    """An observer's name and its parameters.

    Args:
        name: "auto" is chosen by the network.  Convolutional ones cut the rarest values, one in
            100,000: on EfficientNet-Lite0 that gains 0.6 dB over min-max, on a YOLOX detector,
            whose activations have long tails, 2.5 dB.  On transformers, whose outliers carry the
            result, clipping is harmful: they take min-max.
    """

    name: ObserverName = "auto"
    percentile: float = 99.999
    momentum: float = 0.9

    def of_network(self, *, transformer: bool) -> ObserverChoice:
        """The choice with the name of an observer."""
        if self.name != "auto":
            return self
        return dataclasses.replace(self, name="minmax" if transformer else "percentile")


@dataclass(frozen=True)
class Scheme:
    """What `quantize_model` does.

    Args:
        activations: type of every activation without an override.
        weights: type of every constant operand without an override.
        outputs: "s16": results of the network that a product or a function makes take 16 bits.
        concat_same_scale: inputs and output of a Concat share one scale, whatever their ranges.
        observer: how ranges are found.
        bias_correction: correct the mean error of each product.
        equalization: cross-layer weight equalisation before calibration.
        smoothing: scales of normalised tensors move into the products behind them.
        residual_stream: "s16": what normalisations read, and the sums that make it, take 16 bits.
        overrides: exceptions by node name or operator type; a later one wins.
    """

    activations: ActivationType = ActivationType(DType.U8)
    weights: WeightType = WeightType()
    outputs: Literal["s16", "same"] = "s16"
    concat_same_scale: bool = False
    observer: ObserverChoice = ObserverChoice()
    bias_correction: bool = True
    equalization: bool = False
    smoothing: bool = True
    residual_stream: Literal["s16", "same"] = "s16"
    overrides: tuple[Override, ...] = field(default=())

    def activation_type(self, site: Site | None) -> ActivationType:
        """The type of what `site` makes; None stands for graph inputs and CPU results."""
        chosen = self.activations
        for override in self._overrides(site):
            if override.activations is not None:
                chosen = dataclasses.replace(chosen, dtype=DTYPES[override.activations])
            if override.symmetric_activations is not None:
                chosen = dataclasses.replace(chosen, symmetric=override.symmetric_activations)
        return S16 if chosen.dtype is DType.S16 else chosen

    def weight_type(self, site: Site) -> WeightType:
        """The type of the constant operand of `site`."""
        chosen = self.weights
        for override in self._overrides(site):
            if override.weights is not None:
                chosen = dataclasses.replace(chosen, dtype=DTYPES[override.weights])
            if override.per_channel is not None:
                chosen = dataclasses.replace(chosen, per_channel=override.per_channel)
        if chosen.dtype is DType.U8:
            chosen = dataclasses.replace(chosen, per_channel=False)
        return chosen

    def observer_of(self, site: Site | None) -> ObserverChoice:
        """How the range of what `site` makes is found."""
        chosen = self.observer
        for override in self._overrides(site):
            if override.observer is not None and override.observer != "auto":
                chosen = dataclasses.replace(chosen, name=override.observer)
        return chosen

    def _overrides(self, site: Site | None) -> list[Override]:
        return [] if site is None else [o for o in self.overrides if _selects(o, site)]

    def text(self) -> str:
        """One line for reports and provenance, such as `u8 activations, s8 weights per channel`."""
        a, w = self.activations, self.weights
        parts = [
            f"{'symmetric ' if a.symmetric else ''}{a.dtype.text} activations",
            f"{w.dtype.text} weights per {'channel' if w.per_channel else 'tensor'}",
        ]
        parts += ["power-of-two scales"] if a.power_of_two or w.power_of_two else []
        parts += [f"{self.outputs} outputs"] if self.outputs != "same" else []
        parts += [f"{len(self.overrides)} overrides"] if self.overrides else []
        return ", ".join(parts)


def _selects(override: Override, site: Site) -> bool:
    if override.name is not None:
        return any(override.name in names_of(node) for node in site.nodes)
    return override.op == site.kind or any(override.op == node.op_type for node in site.nodes)


def names_of(node: ir.Node) -> set[str]:
    """The node's name and those of the nodes in the source model that it stands for."""
    return {node.name or "", *node.metadata_props.get("pkg.tilewright.source", "").split(",")} - {
        ""
    }


def resolve_scheme(
    rules: NumericRules, quantization: QuantizationConfig, calibration: CalibrationConfig
) -> Scheme:
    """The configuration's choices over the target's defaults.

    Raises:
        ConfigError: types that do not go together.
    """

    q = quantization
    power_of_two = _chosen(q.power_of_two, rules.power_of_two)
    weights = DTYPES[_chosen(q.weights, rules.weight_types[0])]
    per_channel = _chosen(q.per_channel, rules.per_channel and weights is DType.S8)
    if weights is DType.U8 and per_channel:
        raise ConfigError(
            "quantization: u8 weights have one scale per tensor",
            fix="set per_channel = false or weights = 's8'",
            code="TW-2010",
        )
    activations = ActivationType(
        DTYPES[_chosen(q.activations, rules.default_activation)],
        _chosen(q.symmetric_activations, rules.symmetric),
        power_of_two,
    )
    return Scheme(
        activations=S16 if activations.dtype is DType.S16 else activations,
        weights=WeightType(weights, per_channel, power_of_two),
        outputs=q.outputs if "s16" in rules.activation_types else "same",
        concat_same_scale=rules.concat_same_scale,
        observer=ObserverChoice(calibration.observer, calibration.percentile, calibration.momentum),
        bias_correction=q.bias_correction,
        equalization=q.equalization,
        smoothing=q.smoothing,
        residual_stream=q.residual_stream if "s16" in rules.activation_types else "same",
        overrides=q.overrides,
    )


T = TypeVar("T")


def _chosen(own: T | None, default: T) -> T:
    return default if own is None else own


def check_overrides(scheme: Scheme, nodes: list[ir.Node]) -> None:
    """Every override names something in the model.

    Raises:
        ConfigError: with the nearest name.
    """
    names = set().union(*(names_of(node) for node in nodes)) if nodes else set()
    kinds = {node.op_type for node in nodes}
    for override in scheme.overrides:
        if override.name is not None and override.name not in names:
            raise ConfigError(
                f"quantization.overrides: no node is named {override.name!r}",
                fix=nearest(override.name, names),
                code="TW-2011",
            )
        if override.op is not None and override.op not in kinds:
            raise ConfigError(
                f"quantization.overrides: the model has no {override.op!r} node",
                fix=nearest(override.op, kinds),
                code="TW-2011",
            )
