"""What a chip is: its engines, memories, fixed times and numeric rules.

Rates are per second and per group, not per cycle, because they are fitted to measured latencies and
the effective clock of a board differs from the nominal one.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tilewright.errors import ConfigError, nearest


@dataclass(frozen=True)
class MatrixRates:
    """The matrix array of one group.

    Args:
        convolution, dense, depthwise: multiply-accumulates per second, both operands 8 bits wide.
            `dense` is a matrix product, `depthwise` any convolution with one input channel a group.
        input_step, output_step: channels of a group are rounded up to these before the
            multiply-accumulates are counted; a depthwise convolution is not rounded.
        wide_factor: time of a product with one 16-bit operand, relative to 8 bits; two 16-bit
            operands take its square.
    """

    convolution: float = 0.0
    dense: float = 0.0
    depthwise: float = 0.0
    input_step: int = 1
    output_step: int = 1
    wide_factor: float = 1.0


@dataclass(frozen=True)
class VectorRates:
    """The vector unit of one group; infinity where no cost can be measured.

    Args:
        table: elements per second through a table, in an epilogue or alone.
        softmax: elements per second of softmax and normalisation.
        copy: bytes per second of movement within SRAM.
        output: bytes per second that a matrix epilogue writes.
        pool: elements per second that pooling and reductions read.
        elementwise: elements per second of everything else.
    """

    table: float = 0.0
    softmax: float = 0.0
    copy: float = 0.0
    output: float = 0.0
    pool: float = 0.0
    elementwise: float = 0.0


@dataclass(frozen=True)
class NumericRules:
    """What quantization may and, by default, does use on this chip; types as in `DType.text`.

    Args:
        activation_types: types that activations may have.
        default_activation: the type of an activation that nothing else decides.
        symmetric: activations get a zero point of 0.
        weight_types: types that weights may have, the default first.
        per_channel: weights get a scale for each output channel.
        per_channel_allowed: a scale for each output channel is permitted.
        power_of_two: scales are powers of two.
        concat_same_scale: the inputs and the output of a Concat share one scale.
        rounding: the rule of the vendor's own simulator; `r24` where it is not known.
    """

    activation_types: tuple[str, ...]
    default_activation: str
    symmetric: bool
    weight_types: tuple[str, ...]
    per_channel: bool
    per_channel_allowed: bool
    power_of_two: bool
    concat_same_scale: bool
    rounding: str


class Origin(NamedTuple):
    """Where a number comes from: `source` is published, fitted or assumed."""

    unit: str
    source: str
    note: str


@dataclass(frozen=True)
class Target:
    """One chip.  A target without groups runs no program: every number of its machine is 0.

    Args:
        modes: NPU mode -> number of groups in use.
        peak_tops: 8-bit tera-operations per second of all groups together.
        sram_bytes: SRAM of each group.
        alignment: SRAM addresses of buffers are multiples of this.
        weight_window_bytes: how far ahead of the compute, per group, weights are streamed.
        ddr_bytes_per_second: shared by all groups.
        ddr_burst_bytes: every contiguous run of a transfer occupies whole bursts.
        ddr_row_bytes: bandwidth, in bytes, that each contiguous run costs besides.
        transfer_seconds: from the start of a transfer to its first byte.
        instruction_seconds: added to each MTX and VEC instruction.
        operator_seconds: added to the first MTX or VEC instruction of each operator.
        run_seconds: before the first instruction of a run.
        vector_overlap: MTX and VEC of a group run at the same time, and a matrix product overlaps
            its own epilogue.
        origins: dotted key of the description -> where its number comes from.
    """

    name: str
    title: str
    vendor: str
    groups: int
    modes: dict[str, int] = field(hash=False)
    clock_hz: float
    peak_tops: float
    sram_bytes: int
    alignment: int
    weight_window_bytes: int
    ddr_bytes_per_second: float
    ddr_burst_bytes: int
    ddr_row_bytes: int
    transfer_seconds: float
    instruction_seconds: float
    operator_seconds: float
    run_seconds: float
    vector_overlap: bool
    matrix: MatrixRates
    vector: VectorRates
    numeric: NumericRules
    origins: dict[str, Origin] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def digest(self) -> str:
        """sha256 of every value; titles, sources and notes do not count."""
        values = asdict(self)
        for prose in ("title", "vendor", "origins"):
            del values[prose]
        return hashlib.sha256(json.dumps(_plain(values), sort_keys=True).encode()).hexdigest()

    @property
    def ddr_bytes_per_cycle(self) -> float:
        return self.ddr_bytes_per_second / self.clock_hz

    def mode_groups(self, mode: str) -> int:
        """Number of groups of an NPU mode.

        Raises:
            ConfigError: the target has no such mode.
        """
        if mode not in self.modes:
            known = nearest(mode, self.modes) if self.modes else "it runs no program"
            raise ConfigError(f"target {self.name} has no mode {mode!r}", fix=known, code="TW-2022")
        return self.modes[mode]

    def seconds(self, cycles: float) -> float:
        return cycles / self.clock_hz

    def cycles(self, seconds: float) -> float:
        return seconds * self.clock_hz


def _plain(value: Any) -> Any:
    """Numbers as floats, so that 1 and 1.0 in a description are one value."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
