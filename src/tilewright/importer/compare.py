"""Float outputs of a model before and after import, from onnxruntime."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.saving import LARGEST_MESSAGE_BYTES, constant_bytes, save
from tilewright.inference import InferenceSession

Feeds = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class OutputError:
    """How far one output moved.

    Attributes:
        max_relative: largest absolute difference over the largest magnitude of the original output.
        max_absolute: largest absolute difference, in the output's unit.
    """

    max_relative: float
    max_absolute: float


def compare_outputs(
    original: str | os.PathLike[str] | ir.Model, canonical: ir.Model, feeds: Feeds
) -> dict[str, OutputError]:
    """Run both models on the same inputs and compare output by output.

    Args:
        original: the source model, by path or in memory.
        canonical: what import_model made of it.
        feeds: input name -> array.

    Raises:
        ModelError: onnxruntime refuses one of the models or the inputs.
    """
    return output_errors(run_model(original, feeds), run_model(canonical, feeds))


def output_errors(before: Feeds, after: Feeds) -> dict[str, OutputError]:
    """Output by output, how far the second run is from the first."""
    return {name: output_error(before[name], after[name]) for name in before}


def output_error(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> OutputError:
    """Largest difference; equal infinities count as equal, and anything where the source gives NaN.

    A sentence without tokens, for instance, is a mean of nothing.  NaN where nothing is left to
    compare.
    """
    if before.shape != after.shape:
        return OutputError(float("inf"), float("inf"))
    if before.size == 0 or before.dtype.kind not in "biuf":
        same = before.size == 0 or bool((before == after).all())
        return OutputError(0.0, 0.0) if same else OutputError(float("inf"), float("inf"))
    first, second = before.astype(np.float64), after.astype(np.float64)
    if np.isnan(first).all():
        return OutputError(float("nan"), float("nan"))
    with np.errstate(invalid="ignore"):
        equal = (first == second) | np.isnan(first)
        difference = np.where(equal, 0.0, np.abs(first - second))
    largest = float(np.max(difference)) if not np.isnan(difference).any() else float("inf")
    finite = np.abs(first[np.isfinite(first)])
    scale = float(finite.max()) if finite.size else 0.0
    return OutputError(largest / scale if scale > 0 else largest, largest)


def run_model(
    model: str | os.PathLike[str] | ir.Model, feeds: Feeds
) -> dict[str, npt.NDArray[Any]]:
    """Outputs by name; graph optimisations are off, so that the model runs as it is written."""
    with tempfile.TemporaryDirectory() as folder:
        session = InferenceSession(_loadable(model, Path(folder)), optimised=False)
        outputs = session.run(session.outputs, feeds)
    return dict(zip(session.outputs, outputs, strict=True))


def _loadable(model: str | os.PathLike[str] | ir.Model, folder: Path) -> str | bytes:
    if not isinstance(model, ir.Model):
        return os.fspath(model)
    external = any(
        isinstance(value.const_value, ir.ExternalTensor)
        for value in model.graph.initializers.values()
    )
    if external or constant_bytes(model) > LARGEST_MESSAGE_BYTES:
        path = folder / "model.onnx"
        save(model, path)
        return os.fspath(path)
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content
