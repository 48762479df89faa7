"""The bias of a product before a saturating function at the network's end (scores of a detector).

The mean over all positions, which `bias_correction` restores, is that of the background: almost all
positions lie where the function is flat and an error costs nothing.  Here the bias takes the shift
that minimises the squared error of the function's result f to first order,

    shift = sum f'(y)**2 * (y - yq) / (sum f'(y)**2 + PRIOR)

over all positions of all samples, y being the float and yq the quantized pre-activation.  The prior
stands for positions without error: where hardly any position is sensitive, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.quantize.encodings import unary_of
from tilewright.quantize.outputs import leaves
from tilewright.quantize.probes import ProductProbe
from tilewright.quantize.sessions import Array
from tilewright.quantize.sites import Partition
from tilewright.quantize.weights import FloatArray

PRIOR = 10 / 16
"""Ten positions where a sigmoid is steepest."""


def _sigmoid_slope(y: FloatArray) -> FloatArray:
    p = 1 / (1 + np.exp(-np.clip(y, -60, 60)))
    return np.asarray(p * (1 - p), np.float64)


SLOPES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "Sigmoid": _sigmoid_slope,
    "Tanh": lambda y: np.asarray(1 - np.tanh(y) ** 2, np.float64),
}


def output_probes(partition: Partition, probes: Sequence[ProductProbe]) -> list[ProductProbe]:
    """The products that end the network in one of the functions of `SLOPES`."""
    ends = {id(site) for site in leaves(partition).values()}
    return [p for p in probes if id(p.site) in ends and _slope(p) is not None]


def _slope(probe: ProductProbe) -> Callable[[FloatArray], FloatArray] | None:
    unary = unary_of(probe.site)
    return None if unary is None else SLOPES.get(unary.name)


class OutputError:
    """Sums of one product's weighted errors, channel by channel."""

    def __init__(self, probe: ProductProbe) -> None:
        self.probe = probe
        self.error: FloatArray | float = 0.0
        self.weight: FloatArray | float = 0.0

    def add(self, exact: Array, quantized: Array) -> None:
        """One sample's pre-activations."""
        slope = _slope(self.probe)
        assert slope is not None
        y = np.moveaxis(exact.astype(np.float64), self.probe.axis, 0)
        y = y.reshape(len(y), -1)
        yq = np.moveaxis(quantized, self.probe.axis, 0).reshape(y.shape)
        weight = slope(y) ** 2
        self.error = self.error + (weight * (y - yq)).sum(axis=1)
        self.weight = self.weight + weight.sum(axis=1)

    @property
    def shift(self) -> FloatArray:
        """What to add to the bias, [C]."""
        return np.asarray(self.error / (self.weight + PRIOR), np.float64)
