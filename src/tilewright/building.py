"""A whole build: the stages in order, each run only when something that it reads has changed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cache import (
    Sources,
    calibration_settings,
    content_key,
    fresh,
    key_of,
    rules_that_count,
    source_of,
    tool_name,
)
from tilewright.config import BuildConfig
from tilewright.files import commit, sha256_of, staging
from tilewright.report.content import BuildWarning, CpuNode, Report, Stage, read_report
from tilewright.report.content import write_report as write_report_file
from tilewright.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from tilewright.data import InputDescription, SampleSet
    from tilewright.quantize import Calibration
    from tilewright.stages import Compiled

OPTIMIZED, QUANTIZED, COMPILED = "optimized.onnx", "quantized.onnx", "compiled.onnx"
CALIBRATION = "calibration.npz"
REPORT, PAGE, SETTINGS = "report.json", "report.html", "build.toml"

Progress = Callable[[str, int, int], None]


def run_build(
    source: Path, folder: Path, config: BuildConfig, target: Target, progress: Progress
) -> Report:
    """Run the stages that are not fresh; the folder's files appear together, at the end.

    Raises:
        TilewrightError: one sentence on what is wrong; nothing is left under a final name.
    """
    return _Run(source, folder, config, target, progress).build()


class _Run:
    """One build: what is known, what is new."""

    def __init__(
        self, source: Path, folder: Path, config: BuildConfig, target: Target, progress: Progress
    ) -> None:
        self.source, self.folder = source, folder
        self.config, self.target, self.progress = config, target, progress
        self.old = read_report(folder / REPORT)
        self.stages: list[Stage] = []
        self.seconds: dict[str, float] = {}
        self.found: dict[str, Any] = {}
        self.models: dict[str, ir.Model] = {}
        self.calibration: Calibration | None = None
        self.warnings: Future[list[dict[str, str]]] | None = None
        self.compiled: Compiled | None = None
        self.new: list[str] = []
        self.digests: dict[str, str] = {}

    def build(self) -> Report:
        from tilewright.stages import modes_of

        self.modes = modes_of(self.config, self.target)
        sources = source_of(self.source, self.old)
        with staging(self.folder) as scratch:
            self.scratch = scratch
            self._import(sources)
            self._open_samples()
            with ThreadPoolExecutor(1) as beside:
                self._calibrate(beside)
                self._quantize()
                self._compile()
                self._measure()
            self._hear()
            report = self._report(sources)
            if self.new:
                self._finish(report)
        return report

    # One method a stage: its key, and what to do when it is not fresh.

    def _stage(self, name: str, key: str, artifact: str | None, run: Callable[[], None]) -> None:
        if fresh(self.old, name, key, self.folder, artifact):
            assert self.old is not None
            before = self.old.stage(name)
            assert before is not None
            if artifact is not None:
                self.digests[artifact] = self.old.artifacts[artifact]
            self.stages.append(dataclasses.replace(before, reused=True))
            self.seconds[name] = 0.0
            self._recall(name)
            return
        self.progress(name, 0, 0)
        start = time.perf_counter()
        run()
        spent = time.perf_counter() - start
        self.stages.append(Stage(name, key, spent, reused=False))
        self.seconds[name] = spent
        self.new.append(artifact or name)

    def _recall(self, name: str) -> None:
        assert self.old is not None
        self.found[name] = dict(self.old.findings[name])
        if name == "measure":
            self.found[name] |= {"modes": self.old.modes, "sqnr_db": self.old.sqnr_db}

    def _path(self, artifact: str) -> Path:
        """Where the current version of an artifact is."""
        made = self.scratch / artifact
        return made if made.exists() else self.folder / artifact

    def _digest(self, artifact: str) -> str:
        if artifact not in self.digests:
            self.digests[artifact] = sha256_of(self._path(artifact))
        return self.digests[artifact]

    def _model(self, artifact: str) -> ir.Model:
        if artifact not in self.models:
            from tilewright.importer import load

            self.models[artifact] = load(self._path(artifact))
        return self.models[artifact]

    def _import(self, sources: Sources) -> None:
        from tilewright.stages import import_stage, ports_of

        def run() -> None:
            imported, found = import_stage(
                self.source,
                self.config.input_shapes,
                self.scratch / OPTIMIZED,
                self.config.start,
                self.config.end,
            )
            self.models[OPTIMIZED] = imported.model
            found["inputs"] = [
                {"name": name, "shape": list(shape), "dtype": dtype.name}
                for name, shape, dtype in ports_of(imported.model)
            ]
            found["outputs"] = [
                {
                    "name": v.name,
                    "shape": [d if isinstance(d, int) else None for d in v.shape or ()],
                    "dtype": v.dtype.numpy().name if v.dtype else "",
                }
                for v in imported.model.graph.outputs
            ]
            self.found["import"] = found

        shapes = {k: list(v) for k, v in self.config.input_shapes.items()}
        part = [list(self.config.start), list(self.config.end)]
        self._stage("import", key_of(sources.as_dict(), shapes, part), OPTIMIZED, run)

    def _open_samples(self) -> None:
        import numpy as np

        from tilewright.calibrating import open_calibration
        from tilewright.preprocessing import describe_inputs

        ports = [
            (i["name"], tuple(i["shape"]), np.dtype(i["dtype"]))
            for i in self.found["import"]["inputs"]
        ]
        self.inputs: tuple[InputDescription, ...] = describe_inputs(
            ports, self.config, self.found["import"]["metadata"]
        )
        self.specs = {d.name: d.spec.model_dump(mode="json") for d in self.inputs}
        self.samples: SampleSet | None = None
        if not self.found["import"]["quantized"] or self.config.calibration.data is not None:
            self.samples = open_calibration(self.config, self.inputs)
        self.fingerprint = self.samples.fingerprint() if self.samples else ""

    def _calibrate(self, beside: Executor) -> None:
        """What the samples show in the float model; a quantized model has its scales already.

        Args:
            beside: goes on asking about preprocessing, while later stages run.
        """
        from tilewright.calibrating import calibrate_stage, preprocessing_warnings

        if self.found["import"]["quantized"]:
            return

        def run() -> None:
            from tilewright.quantize import save_calibration

            assert self.samples is not None
            self.calibration, self.found["calibrate"], pictures = calibrate_stage(
                self._model(OPTIMIZED), self.samples, self.config, self.target, self.progress
            )
            save_calibration(self.calibration, self.scratch / CALIBRATION)
            self.warnings = beside.submit(
                preprocessing_warnings, self._path(OPTIMIZED), self.source, self.samples, pictures
            )

        settings = calibration_settings(self.config, self.target.numeric)
        key = key_of(self._digest(OPTIMIZED), settings, self.specs, self.fingerprint)
        self._stage("calibrate", key, CALIBRATION, run)

    def _hear(self) -> None:
        """Take the warnings that were found beside the stages."""
        if self.warnings is not None:
            self.found["calibrate"]["warnings"] += self.warnings.result()

    def _statistics(self) -> Calibration:
        if self.calibration is None:
            from tilewright.quantize import load_calibration

            self.calibration = load_calibration(self._path(CALIBRATION))
        return self.calibration

    def _quantize(self) -> None:
        from tilewright.stages import adopt_stage, quantize_stage

        float_model = not self.found["import"]["quantized"]

        def run() -> None:
            if not float_model:
                self.found["quantize"] = adopt_stage(
                    self._path(OPTIMIZED), self.scratch / QUANTIZED
                )
                return
            assert self.samples is not None
            quantized, self.found["quantize"] = quantize_stage(
                self._model(OPTIMIZED),
                self.samples,
                self._statistics(),
                self.config,
                self.target,
                self.scratch / QUANTIZED,
                self.progress,
            )
            self.models[QUANTIZED] = quantized.model

        settings = self.config.model_dump(mode="json", include={"quantization", "calibration"})
        settings["calibration"].pop("data")
        rules = rules_that_count(self.target.numeric)
        made_from = [self._digest(n) for n in (OPTIMIZED, *[CALIBRATION] * float_model)]
        key = key_of(made_from, settings, rules, self.specs, self.fingerprint)
        self._stage("quantize", key, QUANTIZED, run)

    def _compile(self) -> None:
        from tilewright.stages import compile_stage, describe_compiled, own_target_text, pack

        def run() -> None:
            self.compiled = compile_stage(
                self._model(QUANTIZED),
                self.inputs,
                self.target,
                self.modes,
                self.progress,
            )
            pack(
                self.compiled,
                self.inputs,
                self.target,
                self.scratch / COMPILED,
                made_from=content_key(quantized, self.target.digest, self.modes),
                target_text=own_target_text(self.config),
            )
            self.found["compile"] = describe_compiled(self.compiled)

        quantized = self._digest(QUANTIZED)
        chip = (self.target.name, self.target.digest)
        self._stage("compile", key_of(quantized, chip, self.modes, self.specs), COMPILED, run)

    def _measure(self) -> None:
        from tilewright.measuring import measure_stage

        def run() -> None:
            self.found["measure"] = measure_stage(
                self._path(COMPILED), self._path(OPTIMIZED), self.samples, self.progress
            )

        digests = [self._digest(name) for name in (COMPILED, OPTIMIZED)]
        self._stage("measure", key_of(digests, self.fingerprint), None, run)

    # What remains: the report, and moving everything into place.

    def _report(self, sources: Sources) -> Report:
        from tilewright.stages import preprocessing_text

        imported, quantized = self.found["import"], self.found["quantize"]
        compiled, measured = self.found["compile"], self.found["measure"]
        inputs = tuple(
            {**row, "preprocessing": preprocessing_text(d)}
            for row, d in zip(imported["inputs"], self.inputs, strict=True)
        )
        calibrated = self.found.get("calibrate", {"warnings": []})
        warnings = [BuildWarning("calibration", **w) for w in calibrated["warnings"]]
        warnings += [BuildWarning("measure", **w) for w in measured["warnings"]]
        return Report(
            tool=tool_name(),
            model=self.source.name,
            target=self.target.name,
            compiled=COMPILED,
            inputs=inputs,
            outputs=tuple(imported["outputs"]),
            nodes_npu=compiled["nodes_npu"],
            nodes_cpu=tuple(CpuNode(**n) for n in compiled["nodes_cpu"]),
            modes=measured["modes"],
            sqnr_db=measured["sqnr_db"],
            float_difference=imported["float_difference"],
            passes=imported["passes"],
            near_misses=tuple(imported.get("near_misses", ())),
            calibration=_calibration({**calibrated, **quantized}, self.config),
            warnings=tuple(warnings),
            notes=tuple(compiled["notes"]),
            stages=tuple(self.stages),
            seconds=self.seconds,
            peak_mib=_peak_mib(),
            artifacts=dict(self.digests),
            source=sources.as_dict(),
            findings={**self.found, "measure": {"warnings": measured["warnings"]}},
        )

    def _finish(self, report: Report) -> None:
        from tilewright.report.page import render

        made = [name for name in self.digests if (self.scratch / name).exists()]
        (self.scratch / SETTINGS).write_text(self.config.canonical(), encoding="utf-8")
        (self.scratch / PAGE).write_text(render(report), encoding="utf-8")
        write_report_file(report, self.scratch / REPORT)
        commit(self.scratch, self.folder, [*made, SETTINGS, PAGE, REPORT])


def _calibration(found: Mapping[str, Any], config: BuildConfig) -> dict[str, Any]:
    """The rows of the report on how ranges were found."""
    shown = ("scheme", "observer", "samples", "samples_per_second", "notes")
    rows = {key: found[key] for key in shown if found.get(key) not in (None, [], "")}
    if config.calibration.data is not None:
        rows["data"] = Path(config.calibration.data).name
    return rows


def _peak_mib() -> float:
    """Largest resident memory of this process and its workers, in MiB."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    sizes = [
        resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return max(sizes) * unit / 2**20
