"""Tilewright's stages on a network of `models`, artifacts in a work folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from models import Network

from tilewright.compiled import CompiledModel
from tilewright.config import BuildConfig, validate_config
from tilewright.importer import load
from tilewright.stages import (
    Compiled,
    compile_stage,
    describe_compiled,
    describe_inputs,
    import_stage,
    modes_of,
    open_calibration,
    pack,
    ports_of,
    quantize_stage,
)
from tilewright.targets import load_target, target_names

Array = npt.NDArray[Any]

CALIBRATION = 32
NOISE_CALIBRATION = 8
"""Enough for structures: noise is the same everywhere."""


@dataclass(frozen=True)
class Source:
    """A network's float model and its calibration samples as files.

    Args:
        model: as its author published it.
        samples: .npz, samples stacked along the batch axis under the input's name.
        input: name of the input.
    """

    network: Network
    model: Path
    samples: Path
    input: str


@dataclass(frozen=True)
class Built:
    """A compiled network.

    Args:
        seconds: stage -> wall time.
        placement: nodes on the NPU and on the CPU, as in report.json.
    """

    model: CompiledModel
    optimized: Path
    quantized: Path
    compiled: Compiled
    seconds: Mapping[str, float]
    placement: Mapping[str, Any]


def prepare(network: Network, work: Path, count: int | None = None) -> Source:
    """Write the float model and its samples; what is there already is kept.

    Args:
        count: calibration samples; default: 32, or 8 for networks without trained weights.
    """
    folder = work / network.name / "x".join(map(str, network.shape))
    folder.mkdir(parents=True, exist_ok=True)
    model_file, samples_file = folder / "float.onnx", folder / "samples.npz"
    model = network.load()
    name = network.input_name(model)
    if not model_file.exists():
        onnx.save(model, model_file)
    if not samples_file.exists():
        wanted = count or (CALIBRATION if network.trained else NOISE_CALIBRATION)
        stacked = np.concatenate(list(network.samples(wanted)))
        np.savez(samples_file, allow_pickle=False, **{name: stacked})
    return Source(network, model_file, samples_file, name)


def read_samples(source: Source) -> Array:
    """The calibration samples, stacked along the first axis."""
    stacked: Array = np.load(source.samples)[source.input]
    return stacked


def configure(
    source: Source,
    target: str,
    modes: Iterable[str] | None = None,
    quantization: Mapping[str, Any] | None = None,
) -> BuildConfig:
    """The configuration that `tilewright build` would have; `modes` defaults to all there are."""
    chosen = tuple(modes if modes is not None else load_target(target).modes)
    given: dict[str, Any] = {
        "target": target,
        "input_shapes": {source.input: list(source.network.shape)},
        "input": {"kind": "tensor"},
        "calibration": {"data": str(source.samples)},
        "quantization": dict(quantization or {}),
    }
    return validate_config(given | ({"npu_modes": list(chosen)} if chosen else {}))


def build(source: Source, config: BuildConfig, folder: Path) -> Built:
    """Import, quantize, compile and pack; the stages of `tilewright build` without its checks."""
    folder.mkdir(parents=True, exist_ok=True)
    optimized, quantized_file = folder / "optimized.onnx", folder / "quantized.onnx"
    target = load_target(config.target)
    clock = _Clock()
    imported, _ = import_stage(source.model, config.input_shapes, optimized)
    clock.lap("import")
    inputs = describe_inputs(ports_of(imported.model), config)
    samples = open_calibration(config, inputs)
    quantize_stage(imported.model, samples, config, target, quantized_file, _silent)
    clock.lap("quantize")
    return _compile(clock, config, inputs, optimized, quantized_file, folder)


def build_quantized(qdq: Path, config: BuildConfig, folder: Path) -> Built:
    """As `build`, of a file that another tool has quantized."""
    folder.mkdir(parents=True, exist_ok=True)
    optimized = folder / "optimized.onnx"
    clock = _Clock()
    imported, _ = import_stage(qdq, config.input_shapes, optimized)
    clock.lap("import")
    inputs = describe_inputs(ports_of(imported.model), config)
    return _compile(clock, config, inputs, optimized, optimized, folder)


def _compile(
    clock: _Clock,
    config: BuildConfig,
    inputs: Any,
    optimized: Path,
    quantized: Path,
    folder: Path,
) -> Built:
    target = load_target(config.target)
    modes = modes_of(config, target)
    compiled = compile_stage(load(quantized), inputs, target, modes, _silent)
    pack(compiled, inputs, target, folder / "compiled.onnx")
    clock.lap("compile")
    model = CompiledModel(folder / "compiled.onnx")
    placement = describe_compiled(compiled)
    return Built(model, optimized, quantized, compiled, clock.seconds, placement)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now


def _silent(_stage: str, _done: int, _total: int) -> None:
    return None


def npu_targets() -> tuple[str, ...]:
    """Every chip that Tilewright describes, the plain CPU last."""
    return tuple(sorted(target_names(), key=lambda name: name == "cpu"))
