"""What quantization did, in plain data."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.data.checks import CalibrationWarning
from tilewright.graph import Encoding
from tilewright.quantize.ranges import Range


@dataclass(frozen=True)
class CpuRow:
    """A node that stays float, in the report's terms."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True)
class QuantizationReport:
    """Everything that was changed, approximated or left out.

    Args:
        scheme: one line.
        samples: calibration samples.
        notes: sentences on what was decided: outputs cut, scales raised, layers equalised.
        warnings: of the calibration.
        ranges: value name -> calibrated range, after the observer.
        encodings: value name -> encoding.
        cpu: nodes that stay float.
        corrections: node name of a product -> largest change of a bias by bias correction.
        seconds: wall time by stage; for reports only, it never enters an artifact.
    """

    scheme: str
    samples: int
    notes: tuple[str, ...]
    warnings: tuple[CalibrationWarning, ...]
    ranges: dict[str, Range]
    encodings: dict[str, Encoding]
    cpu: tuple[CpuRow, ...]
    corrections: dict[str, float]
    seconds: dict[str, float]
