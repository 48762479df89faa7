"""Preprocessing that travels with a model: written into its metadata, trusted when read.

Our own record is complete.  Beside it stand the entries that ONNX defines for images, which other
tools read and write: the channel order and the range of pixel values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.config import BuildConfig, InputSpec
from tilewright.container import METADATA_PREFIX
from tilewright.data import InputDescription
from tilewright.data.preprocess import image_form
from tilewright.errors import ArtifactError, ConfigError, nearest

Port = tuple[str, tuple[int, ...], np.dtype[Any]]
"""Name, static shape and type of a model input."""

OWN_KEY = METADATA_PREFIX + "preprocessing"
PIXEL_FORMAT, PIXEL_RANGE = "Image.BitmapPixelFormat", "Image.NominalPixelRange"

COLORS = {"Rgb8": "RGB", "Bgr8": "BGR", "Gray8": "GRAY"}
RANGES = {
    "NominalRange_0_255": (0.0, 1.0),
    "Normalized_0_1": (0.0, 255.0),
    "Normalized_1_1": (127.5, 127.5),
}
"""Value of PIXEL_RANGE -> mean and std that give it."""


def to_json(descriptions: Sequence[InputDescription]) -> str:
    """Our own record; the same descriptions give the same text."""
    specs = {
        d.name: {
            "shape": d.shape,
            "dtype": d.dtype.name,
            "spec": d.spec.model_dump(mode="json", exclude_none=True),
        }
        for d in descriptions
    }
    return json.dumps(specs, sort_keys=True)


def from_json(text: str, where: str) -> tuple[InputDescription, ...]:
    """Read our own record.

    Raises:
        ArtifactError: it is damaged; `where` names the file.
    """
    try:
        return tuple(
            InputDescription(
                name, tuple(row["shape"]), np.dtype(row["dtype"]), InputSpec(**row["spec"])
            )
            for name, row in json.loads(text).items()
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{where} does not say how its inputs are preprocessed",
            fix="build it again",
            code="TW-1302",
        ) from error


def metadata_of(descriptions: Sequence[InputDescription]) -> dict[str, str]:
    """Entries of `metadata_props` that describe the inputs."""
    entries = {OWN_KEY: to_json(descriptions)}
    images = [d for d in descriptions if d.is_image]
    if len(images) == 1:
        color = image_form(images[0]).color
        entries[PIXEL_FORMAT] = next(k for k, v in COLORS.items() if v == color)
        pair = (images[0].spec.mean, images[0].spec.std)
        named = next((name for name, known in RANGES.items() if known == pair), None)
        if named is not None:
            entries[PIXEL_RANGE] = named
    return entries


def describe_inputs(
    ports: Sequence[Port], config: BuildConfig, stored: Mapping[str, str]
) -> tuple[InputDescription, ...]:
    """Each model input with its preprocessing.

    Args:
        stored: the model's metadata; what the configuration does not say is taken from there.

    Raises:
        ConfigError: the configuration names an input that the model does not have.
    """
    names = [name for name, _, _ in ports]
    for name in config.inputs:
        if name not in names:
            raise ConfigError(
                f"configuration: [inputs.{name}] names no input of the model",
                fix=nearest(name, names),
                code="TW-2112",
            )
    if OWN_KEY in stored and not config.model_fields_set & {"input", "inputs"}:
        known = {d.name: d.spec for d in from_json(stored[OWN_KEY], "the model's metadata")}
        return tuple(InputDescription(*port, known.get(port[0], InputSpec())) for port in ports)
    return tuple(
        InputDescription(*port, _with_image_metadata(config.input_spec(port[0]), stored))
        for port in ports
    )


def _with_image_metadata(spec: InputSpec, stored: Mapping[str, str]) -> InputSpec:
    """The spec with what ONNX's own entries say, where it does not say it itself."""
    given = {name: getattr(spec, name) for name in spec.model_fields_set}
    if stored.get(PIXEL_FORMAT) in COLORS:
        given.setdefault("color", COLORS[stored[PIXEL_FORMAT]])
    if stored.get(PIXEL_RANGE) in RANGES and not {"mean", "std"} & spec.model_fields_set:
        given["mean"], given["std"] = RANGES[stored[PIXEL_RANGE]]
    return InputSpec(**given)
