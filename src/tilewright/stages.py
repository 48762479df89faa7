"""The stages of a build, one function each: artifact in, artifact out, and what was found.

Nothing here knows of caching or of the order of a whole build (`tilewright.building` does).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright import preprocessing
from tilewright.config import BuildConfig
from tilewright.container import (
    METADATA_PREFIX,
    Artifact,
    Container,
    write_container,
)
from tilewright.data import InputDescription, SampleSet, explain, pixels_to_table
from tilewright.data.preprocess import picture_form
from tilewright.errors import ModelError
from tilewright.inference import InferenceSession
from tilewright.targets import Target

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from tilewright.graph import Graph
    from tilewright.importer import Imported
    from tilewright.lowering import Lowered
    from tilewright.program import Program
    from tilewright.quantize import Calibration, Quantized

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]

PREVIEW_SEED = 0


# Inputs


def ports_of(model: ir.Model) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    """Name, static shape and type of every input of a canonical model."""
    ports = []
    for value in model.graph.inputs:
        shape = value.shape
        dtype = value.dtype
        if shape is None or dtype is None or not shape.is_static():
            raise ModelError(
                f"input {value.name!r} has no static shape",
                fix="set it with `tilewright optimize --input-shapes`",
                code="TW-1106",
            )
        ports.append((value.name or "", tuple(shape.numpy()), dtype.numpy()))
    return ports


def preprocessing_text(description: InputDescription) -> str:
    """How samples become this input, in words; empty for inputs that take arrays as they are."""
    return explain(description) if description.is_image else ""


# Import


def import_stage(
    model: Path,
    shapes: Mapping[str, Sequence[int]],
    output: Path,
    start: Sequence[str] = (),
    end: Sequence[str] = (),
) -> tuple[Imported, dict[str, Any]]:
    """Bring the model to canonical form and write it; outputs compared on a seeded sample.

    Args:
        start, end: tensors between which the model is taken; empty: all of it.
    """
    from tilewright.importer import import_model, output_errors, run_model, save

    imported = import_model(model, input_shapes=shapes, start=start, end=end)
    imported.model.metadata_props[METADATA_PREFIX + "source_sha256"] = imported.sha256
    with ThreadPoolExecutor(1) as beside:
        previewed = beside.submit(_preview, imported)
        save(imported.model, output)
    # One after the other: large models are not held twice.
    feeds, original = previewed.result()
    errors = output_errors(original, run_model(output, feeds))
    return imported, {
        "passes": {p.name: p.changes for p in imported.passes},
        "near_misses": [dataclasses.asdict(miss) for miss in imported.near_misses],
        "float_difference": {
            name: e.max_relative if np.isfinite(e.max_relative) else None
            for name, e in errors.items()
        },
        "quantized": imported.quantized,
        "metadata": dict(imported.model.metadata_props),
    }


def _preview(imported: Imported) -> tuple[dict[str, Array], dict[str, Array]]:
    """A seeded sample that the original model takes, and what it makes of it.

    Integers are 1: under a mask of zeros nothing would be left to compute.
    """
    from tilewright.importer import run_model

    ports = ports_of(imported.model)

    def run(integer: int) -> tuple[dict[str, Array], dict[str, Array]]:
        rng = np.random.default_rng(PREVIEW_SEED)
        feeds = {n: _preview_value(rng, shape, dtype, integer) for n, shape, dtype in ports}
        return feeds, run_model(imported.original, feeds)

    try:
        return run(1)
    except ModelError:  # such as an index into a table of one row
        return run(0)


def _preview_value(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], integer: int
) -> Array:
    """Standard normal values for float inputs, one value for indices and masks."""
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return np.full(shape, integer, dtype)


# Quantize


def quantize_stage(
    model: ir.Model,
    samples: SampleSet,
    calibration: Calibration,
    config: BuildConfig,
    target: Target,
    output: Path,
    progress: Progress,
) -> tuple[Quantized, dict[str, Any]]:
    """Choose scales, correct biases, write the QDQ model.

    Args:
        model: in canonical form.
        samples: those of the calibration; read when biases are corrected.
        calibration: what they showed in the float model, which is not run again.
    """
    from tilewright.importer import save
    from tilewright.quantize import quantize_model, resolve_scheme

    scheme = resolve_scheme(target.numeric, config.quantization, config.calibration)
    quantized = quantize_model(
        model, _Feeds(samples), scheme, calibration=calibration, progress=tell(progress)
    )
    quantized.model.metadata_props.update(preprocessing.metadata_of(samples.inputs))
    save(quantized.model, output)
    return quantized, {
        "scheme": quantized.report.scheme,
        "observer": quantized.model.metadata_props[METADATA_PREFIX + "observer"],
        "notes": list(quantized.report.notes),
    }


class _Feeds:
    """The samples as the quantizer reads them, more than once."""

    def __init__(self, samples: SampleSet) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return (sample.feeds for sample in self.samples)


def tell(progress: Progress) -> Callable[[str, int, int | None], None]:
    """The quantizer's progress in the terms of a build."""
    return lambda what, done, total: progress(what, done, total or 0)


def adopt_stage(optimized: Path, output: Path) -> dict[str, Any]:
    """Take a model that another tool has quantized: its scales are used as they are."""
    shutil.copyfile(optimized, output)
    return {"scheme": "as in the model that was given", "notes": []}


def float_runner(
    model: ir.Model | Path, *, threads: int = 0
) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """A float model in onnxruntime with its optimisations: feeds by name -> outputs by name."""
    content: str | bytes
    if isinstance(model, Path):
        content = str(model)
    else:
        import onnx_ir as ir

        content = ir.serde.serialize_model(model).SerializeToString()
    session = InferenceSession(content, threads=threads)
    names = session.outputs

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        return dict(zip(names, session.run(names, feeds), strict=True))

    return run


# Compile


@dataclass(frozen=True)
class Compiled:
    """A lowered model with a program for each island and mode.

    Attributes:
        programs: mode -> island name -> program.
    """

    lowered: Lowered
    programs: Mapping[str, Mapping[str, Program]]

    @property
    def graphs(self) -> dict[str, Graph]:
        return {island.name: island.graph for island in self.lowered.islands}


def modes_of(config: BuildConfig, target: Target) -> tuple[str, ...]:
    """The modes to compile for; a target without programs has none.

    Raises:
        ConfigError: a mode that the target does not have.
    """
    if not target.modes and "npu_modes" not in config.model_fields_set:
        return ()
    for mode in config.npu_modes:
        target.mode_groups(mode)
    return config.npu_modes


def compile_stage(
    model: ir.Model,
    descriptions: Sequence[InputDescription],
    target: Target,
    modes: Sequence[str],
    progress: Progress,
) -> Compiled:
    """Lower a QDQ model and compile every island for every mode.

    Raises:
        UnsupportedError: nothing of the model runs on the NPU.
    """
    from tilewright.compiler import compile_graph
    from tilewright.lowering import lower

    lowered = lower(model, _pixel_inputs(descriptions))
    programs: dict[str, dict[str, Program]] = {}
    total = len(modes) * len(lowered.islands)
    for mode in modes:
        programs[mode] = {}
        for island in lowered.islands:
            progress("compile", sum(map(len, programs.values())), total)
            programs[mode][island.name] = compile_graph(island.graph, target, mode)
    return Compiled(lowered, programs)


def own_target_text(config: BuildConfig) -> str:
    """The description of a chip of the user's own; empty for chips that come with Tilewright."""
    own = config.target.endswith(".toml")
    return Path(config.target).read_text("utf-8") if own else ""


def describe_compiled(compiled: Compiled) -> dict[str, Any]:
    """Where the nodes of the model went, and what was changed on the way."""
    sources = {
        name for graph in compiled.graphs.values() for node in graph.nodes for name in node.source
    }
    return {
        "nodes_npu": len(sources),
        "nodes_cpu": [
            {"name": c.name, "op": c.node.op_type, "reason": c.reason}
            for c in compiled.lowered.cpu_nodes
        ],
        "notes": [{"code": n.code, "text": n.text} for n in compiled.lowered.notes],
    }


def _pixel_inputs(descriptions: Sequence[InputDescription]) -> dict[str, Any]:
    """Tables of the inputs whose preprocessing is built into the model."""
    from tilewright.lowering import PixelInput

    tables = {}
    for d in descriptions:
        if d.takes_pictures:
            form = picture_form(d)
            order = (
                tuple(reversed(range(3))) if form.color == "BGR" else tuple(range(form.channels))
            )
            tables[d.name] = PixelInput(pixels_to_table(d.spec, form.channels), order)
    return tables


def pack(
    compiled: Compiled,
    descriptions: Sequence[InputDescription],
    target: Target,
    output: Path,
    *,
    made_from: str = "",
    target_text: str = "",
) -> None:
    """Write the compiled model.

    Args:
        made_from: hash of what it was made from.
        target_text: the description of a chip of the user's own, so that the file stands alone.
    """
    import onnx_ir as ir

    from tilewright import __version__, graphfile
    from tilewright.program import encode

    host = ir.serde.serialize_model(compiled.lowered.host)
    _declare_pictures(host, compiled)
    artifacts = tuple(
        Artifact(
            island.name,
            graphfile.write(island.graph),
            {m: encode(programs[island.name]) for m, programs in compiled.programs.items()},
        )
        for island in compiled.lowered.islands
    )
    metadata = {
        "version": __version__,
        "made_from": made_from,
        "target": target.name,
        "target_digest": target.digest,
        "target_description": target_text,
        "preprocessing": preprocessing.to_json(descriptions),
    }
    write_container(Container(host, artifacts, metadata), output)


def _declare_pictures(host: onnx.ModelProto, compiled: Compiled) -> None:
    """An input with built-in preprocessing takes a u8 picture, NHWC."""
    import onnx

    borders = {
        b.name: g.tensors[b.tensor].shape
        for g in compiled.graphs.values()
        for b in g.inputs
        if b.pixel_table is not None
    }
    for value in host.graph.input:
        if value.name in borders:
            shape = borders[value.name]
            value.CopyFrom(
                onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.UINT8, shape)
            )
