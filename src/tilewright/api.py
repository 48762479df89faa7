"""The Python API: what `import tilewright` offers for building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.building import COMPILED, Progress, run_build
from tilewright.config import BuildConfig, merge_layers, read_config, validate_config
from tilewright.errors import ConfigError
from tilewright.keywords import layer
from tilewright.report.content import Report
from tilewright.targets import load_target

if TYPE_CHECKING:
    import os

    from tilewright.compiled import CompiledModel, Simulation, TimedRun
    from tilewright.execution import Values


@dataclass(frozen=True)
class Build:
    """A finished build.

    Attributes:
        folder: where its files are.
    """

    folder: Path
    _report: Report

    @property
    def compiled(self) -> Path:
        """The compiled model, the file to ship."""
        return self.folder / COMPILED

    def report(self) -> Report:
        """What the build found; the same as report.json."""
        return self._report

    def model(self) -> CompiledModel:
        """The compiled model, loaded."""
        from tilewright.compiled import CompiledModel

        return CompiledModel(self.compiled)

    def simulate(
        self, feeds: Mapping[str, Any] | str | Path, mode: str | None = None
    ) -> Simulation:
        """Outputs and timing on the simulated machine; feeds: arrays by name, or a sample file."""
        model = self.model()
        return model.simulate(_values(model, feeds), model.mode(mode))

    def run(
        self,
        feeds: Mapping[str, Any] | str | Path,
        *,
        repeat: int = 1,
        warmup: int = 0,
        threads: int | None = None,
    ) -> TimedRun:
        """Outputs and latency on this CPU."""
        model = self.model()
        values = _values(model, feeds)
        return model.run(values, repeat=repeat, warmup=warmup, threads=threads)

    def evaluate(
        self, data: str | Path, *, metric: str = "agreement", **settings: Any
    ) -> list[Any]:
        """Float, quantized and compiled model side by side, a row each (see `comparison`)."""
        from tilewright.comparison import evaluate_models

        return evaluate_models([self.folder], data=str(data), metric=metric, **settings)


def _values(model: CompiledModel, feeds: Mapping[str, Any] | str | Path) -> Values:
    return dict(feeds) if isinstance(feeds, Mapping) else model.sample(feeds).values


def build(
    model: str | os.PathLike[str],
    *,
    target: str | Path | None = None,
    calibration: str | Path | Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    npu_modes: Sequence[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> Build:
    """Take a float ONNX model to a verified program.

    Args:
        model: ONNX file, float or QDQ.
        target: chip, by name or .toml file.
        calibration: sample source (see docs/calibration.md), or the whole configuration section.
        output: folder; default: `<model>.<target>` in the working directory.
        npu_modes: such as ["NPU1", "NPU3"].
        config: configuration file; arguments beat it.
        progress: called with stage, items done, items in all (0: not known).
        **keywords: configuration sections, or the short names of `keywords.PATHS`: mean, std,
            preprocess, samples, observer ...

    Raises:
        TilewrightError: one sentence on what is wrong; nothing is left under a final name.
    """
    given = dict(keywords, target=None if target is None else str(target), npu_modes=npu_modes)
    if isinstance(calibration, Mapping):
        given["calibration"] = calibration
    elif calibration is not None:
        given["calib"] = str(calibration)
    settings = resolve(config, given)
    chip = load_target(settings.target)
    source = Path(model)
    folder = Path(output) if output is not None else Path(f"{source.stem}.{chip.name}")
    return Build(folder, run_build(source, folder, settings, chip, progress or _silent))


def _silent(_stage: str, _done: int, _total: int) -> None:
    return None


def resolve(config: str | os.PathLike[str] | None, given: Mapping[str, Any]) -> BuildConfig:
    """One configuration from a file and keywords over it.

    Raises:
        ConfigError: naming the key.
    """
    layers = [read_config(Path(config))] if config is not None else []
    merged = merge_layers(*layers, layer(given))
    if "target" not in merged:
        raise ConfigError(
            "no target", fix="give --target, a name from `tilewright targets`", code="TW-2114"
        )
    return validate_config(merged, Path(config).name if config is not None else "configuration")
