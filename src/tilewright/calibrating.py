"""The calibration of a build: what samples show in the float model, and what is wrong with them.

No type or scale enters what is found: it serves builds for other chips too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.config import BuildConfig
from tilewright.data import InputDescription, SampleSet, open_samples
from tilewright.data.checks import CalibrationChecks, CalibrationWarning
from tilewright.errors import ConfigError
from tilewright.first_layer import first_layer_warning
from tilewright.stages import float_runner, tell
from tilewright.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from tilewright.quantize import Calibration

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]
Progress = Callable[[str, int, int], None]

KEPT_PICTURES = 32


class CalibrationFeeds:
    """Samples as calibration reads them: up to twice, checked the first time.

    Attributes:
        pictures: the first KEPT_PICTURES, fitted, where the only input takes pictures.
    """

    def __init__(self, samples: SampleSet) -> None:
        self.samples = samples
        self.checks = CalibrationChecks(samples.inputs)
        self.pictures: list[Pixels] = []
        self._passes = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        first = self._passes == 0
        self._passes += 1
        for sample in self.samples:
            if first:
                self.checks.add(sample)
                if sample.pixels and len(self.pictures) < KEPT_PICTURES:
                    self.pictures += sample.pixels.values()
            yield sample.feeds


def open_calibration(config: BuildConfig, descriptions: Sequence[InputDescription]) -> SampleSet:
    """The calibration samples.

    Raises:
        ConfigError: none are configured.
        DataError: they cannot be read.
    """
    if config.calibration.data is None:
        raise ConfigError(
            "no calibration data",
            fix="give --calib PICTURES, or --calib random:32 to test structure and speed",
            code="TW-2113",
        )
    return open_samples(
        config.calibration.data,
        descriptions,
        limit=config.calibration.samples,
        seed=config.calibration.seed,
    )


def calibrate_stage(
    model: ir.Model, samples: SampleSet, config: BuildConfig, target: Target, progress: Progress
) -> tuple[Calibration, dict[str, Any], list[Pixels]]:
    """Run the float model on the samples, and judge them.

    Args:
        model: in canonical form.
        target: decides whether there are 16-bit activations, nothing else.

    Returns:
        What the samples showed, what was found, and pictures for `preprocessing_warnings`.
    """
    from tilewright.data.samples import MEANINGLESS
    from tilewright.quantize import calibrate_model, calibration_warnings, resolve_scheme

    scheme = resolve_scheme(target.numeric, config.quantization, config.calibration)
    feeds = CalibrationFeeds(samples)
    start = time.perf_counter()
    calibration = calibrate_model(model, feeds, scheme, progress=tell(progress))
    seconds = time.perf_counter() - start
    warnings = [*feeds.checks.warnings(), *calibration_warnings(calibration)]
    if samples.meaningless:
        warnings.append(CalibrationWarning("random-samples", MEANINGLESS))
    found = {
        "samples": calibration.samples,
        "samples_per_second": calibration.samples / max(seconds, 1e-9),
        "warnings": _rows(warnings),
    }
    return calibration, found, feeds.pictures


def preprocessing_warnings(
    model: ir.Model | Path, source: Path, samples: SampleSet, pictures: Sequence[Pixels]
) -> list[dict[str, str]]:
    """What the model has to say of the declared preprocessing.

    Apart from `calibrate_stage`, whose result does not wait for it: it may go on beside other
    stages, and takes one processor.

    Args:
        model: in canonical form.
        source: the file that it came from, whose own statistics the samples are held against.
        pictures: as `calibrate_stage` returns them.
    """
    if samples.meaningless:
        return []
    first = first_layer_warning(source, (s.feeds for s in samples))
    return _rows([first] if first is not None else _other_preprocessing(model, samples, pictures))


def _other_preprocessing(
    model: ir.Model | Path, samples: SampleSet, pictures: Sequence[Pixels]
) -> list[CalibrationWarning]:
    """Whether the model stands out more clearly under another usual preprocessing."""
    from tilewright.data.variants import better_preprocessing

    if len(samples.inputs) != 1 or not pictures:
        return []
    run = float_runner(model, threads=1)
    found = better_preprocessing(pictures, samples.inputs[0], lambda several: map(run, several))
    return [] if found is None else [found]


def _rows(warnings: Sequence[CalibrationWarning]) -> list[dict[str, str]]:
    return [{"code": w.code, "text": w.text} for w in dict.fromkeys(warnings)]
