"""Several models on the same data, each against the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.compiled import COMPILED, CompiledModel, Fed, SampleFeeds
from tilewright.container import read_container
from tilewright.data import InputDescription, open_samples
from tilewright.errors import ArtifactError, ConfigError, DataError, nearest
from tilewright.evaluation import detection
from tilewright.evaluation.labels import sample_labels
from tilewright.evaluation.statistics import (
    NoiseRatio,
    Proportion,
    mcnemar,
    proportion,
    top_classes,
)
from tilewright.execution import Values
from tilewright.preprocessing import describe_inputs
from tilewright.stages import float_runner, ports_of

METRICS = ("top1", "agreement", "sqnr", "detections")
FOLDER_MODELS = ("optimized.onnx", "quantized.onnx", COMPILED)

Progress = Callable[[str, int, int], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """One model of a comparison."""

    name: str
    run: Callable[[Fed], Values]


def evaluate_models(
    paths: Sequence[Path],
    *,
    data: str | None,
    metric: str = "agreement",
    labels: Path | None = None,
    limit: int | None = None,
    form: str = "auto",
    threshold: float = 0.5,
    threads: int | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    progress: Progress = lambda *_: None,
) -> list[Row]:
    """A row of figures for each model.

    Args:
        paths: ONNX files (float, QDQ or compiled) or build folders, which stand for three files.
        data: samples, as for calibration.
        labels: classes of the samples; top1 needs them.
        form, threshold: of detectors.
        preprocessing: keywords that replace the stored preprocessing.

    Raises:
        ConfigError: an unknown metric, no data, or no labels for top1.
        DataError: data or labels that do not fit.
    """
    if metric not in METRICS:
        raise ConfigError(
            f"no metric is called {metric!r}", fix=nearest(metric, METRICS), code="TW-2122"
        )
    if data is None:
        raise ConfigError("no data to evaluate on", fix="give --data PICTURES", code="TW-2113")
    if metric == "top1" and labels is None:
        raise ConfigError("top1 needs the right classes", fix="give --labels CSV", code="TW-2123")
    files = list(_files(paths))
    inputs = _inputs(files, preprocessing or {})
    samples = open_samples(data, inputs, limit=limit)
    wanted = sample_labels(labels, samples.names) if labels is not None else None
    for name, path in files[1:]:
        _require_inputs(name, path, inputs)
    contenders = [_contender(name, path, threads) for name, path in files]
    compiled = next((CompiledModel(p) for _, p in files if _is_compiled(p)), None)
    feeds = SampleFeeds(compiled, samples) if compiled else _plain(samples)
    size = _picture_size(inputs) if metric == "detections" else (0, 0)
    scores = _Scores(metric, form, threshold, size, len(contenders))
    for index, fed in enumerate(feeds):
        progress("evaluate", index, len(samples))
        scores.add([c.run(fed) for c in contenders], None if wanted is None else wanted[index])
    return [
        {"model": c.name, "samples": len(samples), **scores.row(i)}
        for i, c in enumerate(contenders)
    ]


def _files(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for path in paths:
        if not path.is_dir():
            yield (path.name if len(paths) == 1 else str(path)), path
            continue
        found = [path / name for name in FOLDER_MODELS if (path / name).is_file()]
        if not found:
            raise DataError(
                f"folder {str(path)!r} holds no build", fix="give the -o of a build", code="TW-1306"
            )
        for file in found:
            yield (file.name if len(paths) == 1 else str(file)), file


def _is_compiled(path: Path) -> bool:
    try:
        read_container(path)
    except ArtifactError:
        return False
    return True


def _inputs(
    files: Sequence[tuple[str, Path]], preprocessing: Mapping[str, Any]
) -> tuple[InputDescription, ...]:
    """Preprocessing of the compiled model, or what the keywords say."""
    from tilewright.config import validate_config
    from tilewright.importer import load
    from tilewright.keywords import layer

    given = {k: v for k, v in preprocessing.items() if v is not None}
    compiled = next((p for _, p in files if _is_compiled(p)), None)
    if compiled is not None and not given:
        return CompiledModel(compiled).inputs
    config = validate_config({"target": "cpu", **layer(given)})
    if compiled is not None:
        ports = [(d.name, d.shape, d.dtype) for d in CompiledModel(compiled).inputs]
        return describe_inputs(ports, config, {})
    model = load(files[0][1])
    return describe_inputs(ports_of(model), config, model.metadata_props)


def _require_inputs(name: str, path: Path, inputs: Sequence[InputDescription]) -> None:
    """All models are fed the same samples, so they have the same inputs.

    Raises:
        DataError: the model at `path` takes something else; free dimensions fit any size.
    """
    from tilewright.importer import load

    if _is_compiled(path):
        taken: dict[str, tuple[Any, ...]] = {d.name: d.shape for d in CompiledModel(path).inputs}
    else:
        values = load(path).graph.inputs
        taken = {v.name or "": () if v.shape is None else tuple(v.shape.dims) for v in values}
    given = {d.name: d.shape for d in inputs}
    for input_name, shape in taken.items():
        sizes = given.get(input_name, ())
        fits = len(sizes) == len(shape) and all(
            a == b or not isinstance(b, int) for a, b in zip(sizes, shape, strict=True)
        )
        if input_name not in given or not fits:
            told = "x".join(str(d) for d in shape)
            raise DataError(
                f"{name} takes {input_name!r} of {told}, the first model does not",
                fix="evaluate models with the same inputs",
                code="TW-1232",
            )


def _plain(samples: Any) -> Iterator[Fed]:
    for sample in samples:
        yield Fed(sample.name, sample.feeds, sample.feeds)


def _contender(name: str, path: Path, threads: int | None) -> Contender:
    if _is_compiled(path):
        model = CompiledModel(path)
        execution = model.execution("runtime", threads=threads)
        return Contender(name, lambda fed: model.outputs_of(execution.run(fed.values)))
    if not path.is_file():
        raise DataError(f"there is no model {str(path)!r}", fix="check the path", code="TW-1306")
    run = float_runner(path)
    return Contender(name, lambda fed: run(fed.floats))


def _picture_size(inputs: Sequence[InputDescription]) -> tuple[int, int]:
    from tilewright.data.preprocess import picture_form

    image = next((d for d in inputs if d.is_image), None)
    if image is None:
        raise DataError("detections need a model that takes pictures", code="TW-1210")
    form = picture_form(image)
    return form.height, form.width


class _Scores:
    """Figures of each model, sample by sample."""

    def __init__(
        self, metric: str, form: str, threshold: float, size: tuple[int, int], models: int
    ) -> None:
        self.metric, self.form, self.threshold, self.size = metric, form, threshold, size
        self.ratios: list[dict[str, NoiseRatio]] = [{} for _ in range(models)]
        self.hits: list[list[tuple[bool, bool, bool]]] = [[] for _ in range(models)]
        self.boxes: list[list[detection.Agreement]] = [[] for _ in range(models)]
        self.labelled = False

    def add(self, outputs: list[Values], label: int | None) -> None:
        self.labelled = label is not None
        for i, values in enumerate(outputs):
            for name, value in values.items():
                if np.issubdtype(value.dtype, np.floating):
                    ratio = self.ratios[i].setdefault(name, NoiseRatio())
                    ratio.add(outputs[0][name], value)
        if self.metric == "detections":
            found = [self._detect(values) for values in outputs]
            for i, boxes in enumerate(found):
                self.boxes[i].append(detection.match(found[0], boxes))
        elif self.metric in ("top1", "agreement"):
            tops = [top_classes(next(iter(values.values())), 5).tolist() for values in outputs]
            for i, top in enumerate(tops):
                right = label is not None and top[0] == label
                self.hits[i].append((right, label in top, top[0] == tops[0][0]))

    def _detect(self, values: Values) -> list[detection.Detection]:
        candidates = detection.decode(values, self.size, self.form)
        return detection.select(candidates, threshold=self.threshold)

    def row(self, i: int) -> Row:
        ratios = [r.decibels for r in self.ratios[i].values()]
        known = [r for r in ratios if r is not None and np.isfinite(r)]
        row: Row = {"sqnr_db": min(known) if known and i else None}
        if self.boxes[i]:
            row |= self._detections(self.boxes[i])
        elif self.hits[i]:
            row |= self._classes(i)
        return row

    def _classes(self, i: int) -> Row:
        right, five, same = (np.array(column) for column in zip(*self.hits[i], strict=True))
        row: Row = {"agreement": _interval(same)}
        if self.labelled:
            first = np.array([hit[0] for hit in self.hits[0]])
            p = mcnemar(int((first & ~right).sum()), int((right & ~first).sum()))
            row |= {"top1": _interval(right), "top5": _interval(five)}
            row["mcnemar_p"] = p if i else None
        return row

    def _detections(self, matches: list[detection.Agreement]) -> Row:
        kept, total = sum(m.kept for m in matches), sum(m.total for m in matches)
        if not total:
            raise DataError(
                "the first model detects nothing",
                fix="give a lower --threshold or other data",
                code="TW-1247",
            )
        difference = sum(m.score_difference * m.kept for m in matches) / max(kept, 1)
        share: Proportion = proportion(kept, total)
        return {
            "kept": {"value": share.value, "low": share.low, "high": share.high},
            "detections": total,
            "extra": sum(m.extra for m in matches),
            "score_difference": difference,
        }


def _interval(hits: Any) -> Row:
    share = proportion(int(hits.sum()), len(hits))
    return {"value": share.value, "low": share.low, "high": share.high}
