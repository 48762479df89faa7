"""One stage at a time, from file to file: what `optimize`, `quantize` and `compile` do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.api import resolve
from tilewright.cache import content_key
from tilewright.calibrating import calibrate_stage, open_calibration, preprocessing_warnings
from tilewright.compiled import CompiledModel
from tilewright.errors import ModelError
from tilewright.files import replacing, sha256_of
from tilewright.measuring import mode_figures, require_same_bits
from tilewright.preprocessing import describe_inputs
from tilewright.stages import (
    compile_stage,
    describe_compiled,
    import_stage,
    modes_of,
    own_target_text,
    pack,
    ports_of,
    quantize_stage,
)
from tilewright.targets import load_target

Progress = Callable[[str, int, int], None]
Found = dict[str, Any]


def optimize_file(
    model: Path,
    output: Path,
    shapes: Mapping[str, Sequence[int]],
    start: Sequence[str] = (),
    end: Sequence[str] = (),
) -> Found:
    """Write the canonical form of a model, or of the part between the tensors `start` and `end`.

    Returns:
        `optimized`, `passes` (name -> changes), `near_misses` (rows of `rule`, `node`, `reason`),
        `float_difference` (output -> relative, None where it is not finite).
    """
    with replacing(output) as temporary:
        _, found = import_stage(model, shapes, temporary, start, end)
    del found["quantized"], found["metadata"]
    return {"optimized": str(output), **found}


def quantize_file(
    model: Path,
    output: Path,
    *,
    progress: Progress,
    config: Path | None = None,
    **keywords: Any,
) -> Found:
    """Write the QDQ form of a float model.

    Returns:
        `quantized`, `seconds`, `scheme`, `samples`, `samples_per_second`, `warnings`, `notes`.
    """
    from tilewright.importer import import_model

    settings = resolve(config, keywords)
    target = load_target(settings.target)
    imported = import_model(
        model, input_shapes=settings.input_shapes, start=settings.start, end=settings.end
    )
    if imported.quantized:
        raise ModelError(f"{model} is quantized already", fix="compile it", code="TW-1121")
    inputs = describe_inputs(ports_of(imported.model), settings, imported.model.metadata_props)
    samples = open_calibration(settings, inputs)
    start = time.perf_counter()
    calibration, seen, pictures = calibrate_stage(
        imported.model, samples, settings, target, progress
    )
    seen["warnings"] += preprocessing_warnings(imported.model, model, samples, pictures)
    with replacing(output) as temporary:
        _, found = quantize_stage(
            imported.model, samples, calibration, settings, target, temporary, progress
        )
    return {"quantized": str(output), "seconds": time.perf_counter() - start, **seen, **found}


def compile_file(
    model: Path,
    output: Path,
    *,
    progress: Progress,
    config: Path | None = None,
    **keywords: Any,
) -> Found:
    """Write the compiled form of a QDQ model.

    Returns:
        `compiled`, `target`, `modes` (as in `build`, without layers), `nodes_npu`, `nodes_cpu`,
        `notes` (rows of `code` and `text`).
    """
    from tilewright.importer import import_model

    settings = resolve(config, keywords)
    target = load_target(settings.target)
    modes = modes_of(settings, target)
    imported = import_model(model, input_shapes=settings.input_shapes)
    if not imported.quantized:
        raise ModelError(
            f"{model} is a float model",
            fix="quantize it first, or use `tilewright build`",
            code="TW-1122",
        )
    inputs = describe_inputs(ports_of(imported.model), settings, imported.model.metadata_props)
    compiled = compile_stage(imported.model, inputs, target, modes, progress)
    with replacing(output) as temporary:
        pack(
            compiled,
            inputs,
            target,
            temporary,
            made_from=content_key(sha256_of(model), target.digest, modes),
            target_text=own_target_text(settings),
        )
        figures = _checked(temporary)
    found = {"compiled": str(output), "target": target.name, "modes": figures}
    return found | describe_compiled(compiled)


def _checked(path: Path) -> Found:
    """Run what was compiled once on the machine and once on this CPU; figures of every mode."""
    model = CompiledModel(path)
    fed = model.sample(None)
    expected = model.execution("runtime").run(fed.values)
    figures = {}
    for mode in model.modes:
        simulated = model.simulate(fed.values, mode, given=expected)
        require_same_bits(expected, simulated.values, f"the machine in mode {mode}")
        figures[mode] = dataclasses.asdict(mode_figures(model, mode, simulated))
        del figures[mode]["layers"]
    return figures
