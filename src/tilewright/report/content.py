"""The content of report.json: fields that stay stable.

Plain data, so that scripts, the page and the next build (which reads what made each artifact) see
the same thing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1


@dataclass(frozen=True)
class Stage:
    """One stage of the build.

    Attributes:
        name: import, quantize, compile or measure.
        key: hash of everything that made the artifact.
        seconds: wall time of the run that made it.
        reused: whether this build took the artifact of an earlier one.
    """

    name: str
    key: str
    seconds: float
    reused: bool


@dataclass(frozen=True)
class CpuNode:
    """A node that stays on the CPU, and why."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True)
class Layer:
    """One operator of the integer graph in one NPU mode.

    Attributes:
        name: node of the integer graph.
        op: its operator.
        source: ONNX nodes that it stands for.
        cycles: time that the operator occupies its busiest engine.
        engine: that engine.
        ddr_bytes: bytes moved to and from DDR for it.
        macs: multiply-accumulates.
    """

    name: str
    op: str
    source: tuple[str, ...]
    cycles: int
    engine: str
    ddr_bytes: int
    macs: int


@dataclass(frozen=True)
class Mode:
    """Figures of one NPU mode.

    Attributes:
        max_cycle: cycle at which the last engine ends, all islands together.
        lower_bound_cycle: no schedule of this program can end earlier.
        latency_ms: max_cycle at the target's clock.
        lower_bound_ms: the bound at the target's clock.
        fps: runs per second, one after the other.
        tops: share of the chip's 8-bit peak that the mode has, in tera-operations per second.
        sram_bytes: SRAM used in each group.
        ddr_bytes: DDR that the program addresses: constants and arena.
        layers: in execution order.
    """

    max_cycle: int
    lower_bound_cycle: int
    latency_ms: float
    lower_bound_ms: float
    fps: float
    tops: float
    sram_bytes: int
    ddr_bytes: int
    layers: tuple[Layer, ...] = ()


@dataclass(frozen=True)
class BuildWarning:
    """Something that the user should look at: the number that triggered it is in the text."""

    stage: str
    text: str
    code: str


@dataclass(frozen=True)
class Report:
    """Everything that a build can say.

    Attributes:
        compiled: file name of the compiled model.
        seconds: stage name -> wall time in this run; 0 for stages that were not run again.
        peak_mib: largest resident memory of the process.
        sqnr_db: output name -> signal-to-quantization-noise ratio against float, in decibels.
        float_difference: output name -> largest relative change of the float model by import; None
            where outputs have infinities or NaN of their own.
        passes: import pass -> places changed.
        near_misses: places that an import pass nearly rewrote: rows of `rule`, `node`, `reason`.
        calibration: how ranges were found: samples, observer, preprocessing in words.
        notes: what was changed of a quantized model: rows of `code` and `text`.
        artifacts: file name -> SHA-256.
        source: hash of the model and of its data files.
        findings: stage name -> what it found, for the next build.
    """

    tool: str
    model: str
    target: str
    compiled: str
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    nodes_npu: int
    nodes_cpu: tuple[CpuNode, ...]
    modes: Mapping[str, Mode]
    sqnr_db: Mapping[str, float | None]
    float_difference: Mapping[str, float | None]
    passes: Mapping[str, int]
    calibration: Mapping[str, Any]
    warnings: tuple[BuildWarning, ...]
    stages: tuple[Stage, ...]
    seconds: Mapping[str, float]
    peak_mib: float
    artifacts: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    findings: Mapping[str, Any] = field(default_factory=dict)
    near_misses: tuple[Mapping[str, str], ...] = ()
    notes: tuple[Mapping[str, str], ...] = ()
    format: int = FORMAT

    def stage(self, name: str) -> Stage | None:
        """The stage of that name, if the build had it."""
        return next((s for s in self.stages if s.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in report.json."""
        return dataclasses.asdict(self)


def write_report(report: Report, path: Path) -> None:
    """Write report.json."""
    text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_report(path: Path) -> Report | None:
    """An earlier report; None when there is none or it is of another format."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return None
        modes = {
            name: Mode(**{**m, "layers": tuple(_layer(row) for row in m["layers"])})
            for name, m in data["modes"].items()
        }
        known = {
            "inputs": tuple(data["inputs"]),
            "outputs": tuple(data["outputs"]),
            "nodes_cpu": tuple(CpuNode(**n) for n in data["nodes_cpu"]),
            "warnings": tuple(BuildWarning(**w) for w in data["warnings"]),
            "stages": tuple(Stage(**s) for s in data["stages"]),
            "modes": modes,
            "near_misses": tuple(data.get("near_misses", ())),
            "notes": tuple(data["notes"]),
        }
        return Report(**{**data, **known})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _layer(row: dict[str, Any]) -> Layer:
    return Layer(**{**row, "source": tuple(row["source"])})
