"""BatchNormalization that could not be folded: a gain and an offset for each channel.

gain = gamma / sqrt(variance + epsilon),  offset = beta - mean * gain, in float64; then a depthwise
1x1 convolution (`channelwise`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.graph import Array
from tilewright.ops import channelwise
from tilewright.ops.activation import Activation, absorb
from tilewright.ops.builder import Builder
from tilewright.ops.conv import Conv
from tilewright.ops.pattern import FloatGraph, Refusal, Site, attribute_float, shape_of

ONNX = ("BatchNormalization",)
KINDS = ("BatchNormalization",)
TYPES = "u8, s8, s16"
LIMITS = "inference form; becomes a depthwise 1x1 Conv where it does not fold into its producer"
OPERATORS = (Conv,)


@dataclass(frozen=True)
class BatchNormalizationPattern:
    """Shape-level normalisation of ONNX axis 1; gain and offset are float64 [C]."""

    gain: Array
    offset: Array
    activation: Activation


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal | None:
    """A BatchNormalization node with constant statistics and what fuses behind it."""
    x = node.inputs[0]
    assert x is not None
    statistics = [graph.constant(v) for v in node.inputs[1:5]]
    if any(s is None for s in statistics):
        return Refusal("its statistics are computed at run time")
    shape = shape_of(x)
    if len(shape) < 2:
        return Refusal("its input has no channel axis")
    gamma, beta, mean, variance = ([float(v) for v in s] for s in statistics if s is not None)
    epsilon = attribute_float(node, "epsilon", 1e-5)
    if min(variance) + epsilon <= 0:
        return Refusal("a variance of it is negative")
    gain = [g / math.sqrt(v + epsilon) for g, v in zip(gamma, variance, strict=True)]
    offset = [b - m * g for b, m, g in zip(beta, mean, gain, strict=True)]
    activation = absorb(node.outputs[0], graph, channel_axis=1)
    return Site(
        "BatchNormalization",
        (node, *activation.nodes),
        (x,),
        (activation.output,),
        BatchNormalizationPattern(np.array(gain), np.array(offset), activation),
        inner=activation.inner,
        macs=int(np.prod(shape, dtype=np.int64)),
    )


def bind(site: Site, builder: Builder) -> None:
    """A depthwise convolution whose weights are made here."""
    pattern: BatchNormalizationPattern = site.pattern
    x = channelwise.operand(builder, site.inputs[0], 1)
    channels = channelwise.gains(pattern.gain, pattern.offset, x)
    channelwise.append(builder, site, x, channels, pattern.activation)
