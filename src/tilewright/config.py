"""The build configuration: one schema that files, the command line and vendor dialects fill.

Layers of plain mappings (a file, then the flags) are merged and validated once:

    config = validate_config(merge_layers(read_config(path), {"target": "ax650n"}))

Every problem is a ConfigError that names the key's path.  Absent values (`None`) mean "as the
target's numeric rules say".
"""

from __future__ import annotations

import json
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tilewright.errors import ConfigError, nearest
from tilewright.toml_writer import toml_text

ActivationType = Literal["u8", "s8", "s16"]
WeightType = Literal["s8", "u8"]
ObserverName = Literal["auto", "minmax", "moving_average", "percentile", "mse", "kl"]
PerChannel = float | tuple[float, ...]

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

PRESETS: dict[str, dict[str, Any]] = {
    "imagenet": {
        "kind": "image",
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "resize": "crop",
        "crop_share": 0.875,
        "interpolation": "bilinear",
    },
    "tf": {"kind": "image", "mean": 127.5, "std": 127.5},
    "lite": {
        "kind": "image",
        "mean": 127.0,
        "std": 128.0,
        "resize": "crop",
        "crop_share": 0.875,
        "interpolation": "bicubic",
    },
    "yolo": {
        "kind": "image",
        "mean": 0.0,
        "std": 255.0,
        "resize": "letterbox",
        "pad_value": 114,
        "interpolation": "bilinear",
    },
    "none": {"mean": 0.0, "std": 1.0},
}


class Section(BaseModel):
    """Base of every table of the configuration: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class InputSpec(Section):
    """How a picture or an array becomes one model input.

    Normalisation is `(x - mean) / std` with x on 0..255, per channel in the model's own channel
    order.  The key `preset` may stand beside the others: it fills the keys that are not given.
    """

    kind: Literal["auto", "image", "tensor"] = Field(
        default="auto",
        description="image: mean/std/resize apply; tensor: arrays are fed as they are",
    )
    layout: Literal["NCHW", "NHWC"] | None = Field(
        default=None, description="axis order of the model input; default: found from the shape"
    )
    color: Literal["RGB", "BGR", "GRAY"] | None = Field(
        default=None,
        description="channel order of the model input; default: RGB, or GRAY for one channel",
    )
    mean: PerChannel = Field(
        default=0.0, description="subtracted, on 0..255; one number or one per channel"
    )
    std: PerChannel = Field(
        default=1.0, description="divides after the mean; one number or one per channel"
    )
    resize: Literal["stretch", "crop", "letterbox"] = Field(
        default="stretch",
        description="stretch; crop: central part of the shorter side; letterbox: pad",
    )
    size: tuple[int, int] | None = Field(
        default=None, description="[height, width] after resizing; default: the model's"
    )
    crop_share: float = Field(
        default=0.875,
        gt=0,
        le=1,
        description="crop: share of the shorter side that is kept (224/256)",
    )
    pad_value: int = Field(default=114, ge=0, le=255, description="letterbox: colour of the border")
    interpolation: Literal["bicubic", "bilinear"] = Field(
        default="bilinear", description="resampling filter, antialiased"
    )
    built_in: bool = Field(
        default=False,
        description="the compiled model takes the u8 picture and normalises it itself",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "preset" not in data:
            return data
        given = dict(data)
        name = given.pop("preset")
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; {nearest(str(name), PRESETS)}")
        return {**PRESETS[name], **given}

    @field_validator("std")
    @classmethod
    def _divisor(cls, value: PerChannel) -> PerChannel:
        if any(v <= 0 for v in per_channel(value)):
            raise ValueError("must be above zero")
        return value

    @field_validator("size")
    @classmethod
    def _positive(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and min(value) < 1:
            raise ValueError("must be two positive numbers, [height, width]")
        return value

    @model_validator(mode="after")
    def _same_channels(self) -> InputSpec:
        counts = {len(v) for v in (self.mean, self.std) if isinstance(v, tuple) and len(v) != 1}
        if len(counts) > 1:
            raise ValueError("mean and std have different numbers of channels")
        return self


def per_channel(value: PerChannel) -> tuple[float, ...]:
    """The numbers of a per-channel setting; one number stands for every channel."""
    return value if isinstance(value, tuple) else (value,)


class CalibrationConfig(Section):
    """Which samples set the ranges, and how."""

    data: str | None = Field(
        default=None,
        description="folder, .tar/.tar.gz/.zip, list .txt, .npy, .npz, .bin or random:N;"
        " relative to the working directory",
    )
    samples: int = Field(
        default=32, ge=1, description="at most so many samples, spread evenly over the data"
    )
    observer: ObserverName = Field(
        default="auto",
        description="how a tensor's range is found; auto: percentile, minmax for transformers",
    )
    percentile: float = Field(
        default=99.999, gt=50, le=100, description="percentile: share kept, in percent"
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="moving_average: weight of the past"
    )
    seed: int = Field(default=0, ge=0, description="seed of random:N")


class Override(Section):
    """Quantization of one node (`name`) or of every node of an operator type (`op`)."""

    name: str | None = None
    op: str | None = None
    activations: ActivationType | None = None
    symmetric_activations: bool | None = None
    weights: WeightType | None = None
    per_channel: bool | None = None
    observer: ObserverName | None = None

    @model_validator(mode="after")
    def _one_selector(self) -> Override:
        if (self.name is None) == (self.op is None):
            raise ValueError("give either name (one node) or op (an operator type)")
        return self


class QuantizationConfig(Section):
    """Types and algorithms; a value left out is the target's own."""

    activations: ActivationType | None = Field(default=None, description="type of activations")
    symmetric_activations: bool | None = Field(default=None, description="zero point in the middle")
    weights: WeightType | None = Field(default=None, description="type of weights")
    per_channel: bool | None = Field(
        default=None, description="one weight scale per output channel"
    )
    power_of_two: bool | None = Field(default=None, description="every scale a power of two")
    bias_correction: bool = Field(default=True, description="correct the mean error of each layer")
    equalization: bool = Field(default=False, description="cross-layer weight equalisation")
    smoothing: bool = Field(
        default=True, description="transformers: move outliers behind a LayerNorm into its weights"
    )
    residual_stream: Literal["s16", "same"] = Field(
        default="s16",
        description="transformers: type of the residual stream, where the target has it",
    )
    outputs: Literal["s16", "same"] = Field(
        default="s16", description="type of a matrix product that is a graph output"
    )
    overrides: tuple[Override, ...] = Field(
        default=(), description="exceptions: name or op, then activations, weights, ..."
    )


class CompileConfig(Section):
    """How the compiler works, not what it produces."""

    jobs: int | None = Field(
        default=None, ge=1, description="worker processes; default: one per core"
    )


class BuildConfig(Section):
    """Everything that one build depends on besides the model and the samples' content."""

    target: str = Field(description="chip: a name from `tilewright targets`, or a .toml file")
    npu_modes: tuple[str, ...] = Field(
        default=("NPU1",), min_length=1, description="modes to compile for: NPU1, NPU2, NPU3"
    )
    input_shapes: dict[str, tuple[int, ...]] = Field(
        default_factory=dict, description="fixed shape of each input whose shape is free"
    )
    start: tuple[str, ...] = Field(
        default=(), description="tensors at which the part to build begins; default: the inputs"
    )
    end: tuple[str, ...] = Field(
        default=(), description="tensors at which the part to build ends; default: the outputs"
    )
    input: InputSpec = Field(
        default_factory=lambda: InputSpec(), description="preprocessing of every input"
    )
    inputs: dict[str, InputSpec] = Field(
        default_factory=dict, description="preprocessing by input name; overrides [input]"
    )
    calibration: CalibrationConfig = Field(default_factory=lambda: CalibrationConfig())
    quantization: QuantizationConfig = Field(default_factory=lambda: QuantizationConfig())
    compile: CompileConfig = Field(default_factory=lambda: CompileConfig())

    @field_validator("input_shapes")
    @classmethod
    def _static(cls, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        for name, shape in shapes.items():
            if any(n < 1 for n in shape):
                raise ValueError(f"{name!r} must have positive dimensions, not {list(shape)}")
        return shapes

    def input_spec(self, name: str) -> InputSpec:
        """The spec of one input: the keys given for it, over those given for all inputs."""
        own = self.inputs.get(name)
        if own is None:
            return self.input
        shared = {k: getattr(self.input, k) for k in self.input.model_fields_set}
        given = {k: getattr(own, k) for k in own.model_fields_set}
        return InputSpec(**{**shared, **given})

    def canonical(self) -> str:
        """Deterministic TOML of the whole configuration, defaults included.

        `None` is left out; an absolute path keeps only its last component, since an artifact must
        not depend on where the build took place.
        """
        tree = self.model_dump(mode="json", exclude_none=True)
        tree["target"] = _without_folder(self.target)
        tree["inputs"] = {name: _dump(self.input_spec(name)) for name in sorted(self.inputs)}
        tree["input_shapes"] = {k: list(self.input_shapes[k]) for k in sorted(self.input_shapes)}
        if self.calibration.data is not None:
            tree["calibration"]["data"] = _without_folder(self.calibration.data)
        return toml_text(tree)


def _dump(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_none=True)


def _without_folder(path: str) -> str:
    return Path(path).name if Path(path).is_absolute() else path


# Reading and validating


def read_config(path: str | Path) -> dict[str, Any]:
    """The mapping in a .toml or .json file, not validated yet."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read configuration {str(path)!r}: {error.strerror}", code="TW-2001"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"configuration {str(path)!r} is not UTF-8 text", code="TW-2001"
        ) from error
    try:
        data = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"configuration {str(path)!r}: {error}", code="TW-2002") from error
    if not isinstance(data, dict):
        raise ConfigError(f"configuration {str(path)!r} is not a table of keys", code="TW-2002")
    return data


def merge_layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of mappings; a later layer wins, tables merge key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = merged.get(key)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                merged[key] = merge_layers(old, value)
            else:
                merged[key] = value
    return merged


SectionT = TypeVar("SectionT", bound=Section)


def validate_config(data: Mapping[str, Any], origin: str = "configuration") -> BuildConfig:
    """Check a merged mapping.

    Raises:
        ConfigError: naming the first wrong key by its path, with the nearest known name.
    """
    return validate_section(BuildConfig, data, origin)


def validate_section(kind: type[SectionT], data: Mapping[str, Any], origin: str) -> SectionT:
    """Check the mapping of one section; see :func:`validate_config`."""
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        raise _config_error(kind, error, origin) from None


def load_config(path: str | Path) -> BuildConfig:
    """Read and validate a .toml or .json file."""
    return validate_config(read_config(path), Path(path).name)


def preset(name: str) -> InputSpec:
    """The input spec of a `--preprocess` preset: imagenet, tf, lite, yolo or none."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}", fix=nearest(name, PRESETS), code="TW-2003")
    return InputSpec(**PRESETS[name])


# Errors


def _config_error(kind: type[Section], error: ValidationError, origin: str) -> ConfigError:
    problems = error.errors(include_url=False)
    # An unknown key explains more than the missing key that it was meant to be.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    location = tuple(problem["loc"])
    where = ".".join(str(part) for part in location if not _is_union_tag(part))
    if problem["type"] == "extra_forbidden":
        known = set(_fields_at(kind, location[:-1]))
        known |= {"preset"} if "crop_share" in known else set()
        return ConfigError(
            f"{origin}: unknown key {where!r}",
            fix=nearest(str(location[-1]), known),
            code="TW-2004",
        )
    if problem["type"] == "missing":
        return ConfigError(f"{origin}: {where!r} is missing", fix=f"set {where}", code="TW-2005")
    if problem["type"] == "literal_error":
        expected = re.findall(r"'([^']*)'", str(problem["ctx"]["expected"]))
        given = problem["input"]
        return ConfigError(
            f"{origin}: {where} cannot be {given!r}",
            fix=nearest(str(given), expected),
            code="TW-2006",
        )
    reason = str(problem["msg"]).removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    return ConfigError(f"{origin}: {where or 'configuration'}: {reason}", code="TW-2006")


def _is_union_tag(part: object) -> bool:
    """Pydantic names the tried member of a union in the location; the user's path has none."""
    return isinstance(part, str) and (part in {"float", "int"} or part.startswith("tuple["))


def _fields_at(kind: type[Section], location: tuple[int | str, ...]) -> list[str]:
    current: Any = kind
    for part in location:
        if isinstance(current, type) and issubclass(current, Section):
            field = current.model_fields.get(str(part))
            current = field.annotation if field is not None else None
        else:
            current = next(_sections(current), None)
    if not (isinstance(current, type) and issubclass(current, Section)):
        current = next(_sections(current), kind)
    return list(current.model_fields)


def _sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, Section):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from _sections(argument)
