"""`tilewright.build` on a network of `models`, artifacts in a work folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from models import Network, input_names

import tilewright
from tilewright.api import Build
from tilewright.building import OPTIMIZED, QUANTIZED
from tilewright.compiled import CompiledModel
from tilewright.targets import load_target, target_names

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
"""Input name -> array."""

CALIBRATION = 32
NOISE_CALIBRATION = 8
"""Enough for structures: noise is the same everywhere."""


@dataclass(frozen=True)
class Source:
    """A network's float model and its calibration samples as files.

    Args:
        model: as its author published it.
        samples: .npz, for each input its samples stacked along a new first axis.
        inputs: names, in the model's order.
    """

    network: Network
    model: Path
    samples: Path
    inputs: tuple[str, ...]

    @property
    def input(self) -> str:
        """The only input of a network that has one."""
        (name,) = self.inputs
        return name


@dataclass(frozen=True)
class Built:
    """A network that `tilewright.build` has built, and its compiled model, loaded."""

    build: Build
    model: CompiledModel

    @property
    def optimized(self) -> Path:
        """The canonical float model."""
        return self.build.folder / OPTIMIZED

    @property
    def quantized(self) -> Path:
        """The QDQ model."""
        return self.build.folder / QUANTIZED


def prepare(network: Network, work: Path, count: int | None = None) -> Source:
    """Write the float model and its samples; what is there already is kept.

    Args:
        count: calibration samples; default: 32, or 8 for networks without trained weights.
    """
    shapes = ["x".join(map(str, shape)) for shape in network.shapes]
    folder = work / network.name / "_".join(shapes)
    folder.mkdir(parents=True, exist_ok=True)
    model_file, samples_file = folder / "float.onnx", folder / "samples.npz"
    model = network.load()
    names = input_names(model)
    if not model_file.exists():
        onnx.save(model, model_file)
    if not samples_file.exists():
        wanted = count or (CALIBRATION if network.trained else NOISE_CALIBRATION)
        columns = zip(*network.samples(wanted), strict=True)
        stacked = {name: np.stack(column) for name, column in zip(names, columns, strict=True)}
        np.savez(samples_file, allow_pickle=False, **stacked)
    return Source(network, model_file, samples_file, names)


def read_samples(source: Source) -> list[Feeds]:
    """The calibration samples."""
    with np.load(source.samples) as stored:
        columns = {name: stored[name] for name in source.inputs}
    count = len(next(iter(columns.values())))
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def build(
    source: Source,
    target: str,
    folder: Path,
    *,
    modes: Sequence[str] | None = None,
    choices: Mapping[str, Any] | None = None,
) -> Built:
    """`tilewright.build` on the source's own samples.

    Args:
        modes: default: all that the target has.
        choices: other keywords of `tilewright.build`, such as observer.
    """
    chosen = tuple(modes if modes is not None else load_target(target).modes)
    settings: dict[str, Any] = {
        "input_shapes": dict(zip(source.inputs, map(list, source.network.shapes), strict=True)),
        "input": {"kind": "tensor"},
        **(choices or {}),
    }
    if chosen:
        settings["npu_modes"] = list(chosen)
    built = tilewright.build(
        source.model, target=target, calibration=source.samples, output=folder, **settings
    )
    return Built(built, built.model())


def npu_targets() -> tuple[str, ...]:
    """Every chip that Tilewright describes, the plain CPU last."""
    return tuple(sorted(target_names(), key=lambda name: name == "cpu"))
