"""The commented configuration that `tilewright init` writes: generated from the schema."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tilewright.config import (
    PRESETS,
    BuildConfig,
    CalibrationConfig,
    CompileConfig,
    InputSpec,
    QuantizationConfig,
    Section,
)
from tilewright.toml_writer import toml_key, toml_value


def commented_template(
    target: str,
    inputs: Mapping[str, Sequence[int | None]],
    *,
    model: str | None = None,
    calibration: str | None = None,
    preset: str | None = None,
) -> str:
    """A configuration to start from: every key with its meaning, its default commented out.

    Args:
        target: chip name.
        inputs: shape per model input; `None` is a free dimension, which the user has to fill.
        model: file name of the model, mentioned in the first line.
        calibration: sample source, when known.
        preset: preprocessing preset that is switched on, when known.
    """
    title = f"Tilewright configuration for {model}" if model else "Tilewright configuration"
    lines = [f"# {title}.  Keys behind a '#' show their defaults."]
    lines += ["", *_entry(BuildConfig, "target", target)]
    for key in ("npu_modes", "start", "end"):
        lines += _entry(BuildConfig, key, None)
    lines += ["", *_input_shapes(inputs)]
    lines += ["", "# Preprocessing of every input; [inputs.NAME] does the same for one.", "[input]"]
    lines += [f"# one of {', '.join(PRESETS)}: fills the keys that are not given"]
    lines += [f"preset = {toml_value(preset)}" if preset else '# preset = "imagenet"']
    lines += list(_section(InputSpec, {}))
    lines += ["", "[calibration]", *_section(CalibrationConfig, {"data": calibration})]
    lines += ["", "[quantization]", *_section(QuantizationConfig, {})]
    lines += ["", "[compile]", *_section(CompileConfig, {})]
    return "\n".join(lines) + "\n"


def _input_shapes(inputs: Mapping[str, Sequence[int | None]]) -> Iterator[str]:
    yield f"# {BuildConfig.model_fields['input_shapes'].description}"
    yield "[input_shapes]"
    for name, shape in inputs.items():
        filled = [1 if n is None and axis == 0 else n or 0 for axis, n in enumerate(shape)]
        batch_alone = None in shape[:1] and None not in shape[1:]
        note = ""
        if batch_alone:
            note = "  # the batch is free in the model and set to 1 here"
        elif None in shape:
            note = "  # free in the model: write the sizes for the zeros, remove the first '#'"
        yield f"{'' if batch_alone else '# '}{toml_key(name)} = {toml_value(filled)}{note}"


def _section(section: type[Section], values: Mapping[str, Any]) -> Iterator[str]:
    for name in section.model_fields:
        yield from _entry(section, name, values.get(name))


def _entry(section: type[Section], name: str, value: Any) -> Iterator[str]:
    field = section.model_fields[name]
    choices = _choices(field.annotation)
    text = field.description or name
    yield f"# {text} ({' | '.join(choices)})" if choices else f"# {text}"
    if value is not None:
        yield f"{name} = {toml_value(value)}"
    else:
        yield f"# {name} = {toml_value(_example(field, choices))}"


def _example(field: FieldInfo, choices: list[str]) -> Any:
    default = field.default
    if default is PydanticUndefined or default is None:
        if choices:
            return choices[0]
        kinds = typing.get_args(field.annotation)
        if bool in kinds or int in kinds:
            return False if bool in kinds else 1
        return [224, 224] if "height" in (field.description or "") else ""
    return default


def _choices(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is Literal:
        return [str(v) for v in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [c for part in typing.get_args(annotation) for c in _choices(part)]
    return []
