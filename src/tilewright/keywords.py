"""Short names of configuration keys, shared by the command line and the Python API.

`build --mean 127 --observer kl` and `build(..., mean=127, observer="kl")` say the same; both become
one layer of the configuration, laid over the file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.config import PRESETS, BuildConfig, preset
from tilewright.errors import ConfigError, nearest

PATHS: dict[str, tuple[str, ...]] = {
    "calib": ("calibration", "data"),
    "samples": ("calibration", "samples"),
    "observer": ("calibration", "observer"),
    "percentile": ("calibration", "percentile"),
    "momentum": ("calibration", "momentum"),
    "seed": ("calibration", "seed"),
    "kind": ("input", "kind"),
    "layout": ("input", "layout"),
    "color": ("input", "color"),
    "mean": ("input", "mean"),
    "std": ("input", "std"),
    "resize": ("input", "resize"),
    "size": ("input", "size"),
    "crop_share": ("input", "crop_share"),
    "pad_value": ("input", "pad_value"),
    "interpolation": ("input", "interpolation"),
    "built_in": ("input", "built_in"),
    "activations": ("quantization", "activations"),
    "symmetric_activations": ("quantization", "symmetric_activations"),
    "weights": ("quantization", "weights"),
    "per_channel": ("quantization", "per_channel"),
    "power_of_two": ("quantization", "power_of_two"),
    "bias_correction": ("quantization", "bias_correction"),
    "equalization": ("quantization", "equalization"),
    "smoothing": ("quantization", "smoothing"),
    "residual_stream": ("quantization", "residual_stream"),
    "jobs": ("compile", "jobs"),
}
"""Keyword -> path of the configuration key; sections and top-level keys have their own names."""


def layer(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration layer of keywords; `None` values are left out.

    `preprocess` names a preset, whose values then count as given: they beat a file's.

    Raises:
        ConfigError: an unknown keyword or preset.
    """
    tree: dict[str, Any] = {}
    known = {*PATHS, *BuildConfig.model_fields, "preprocess"}
    chosen = given.get("preprocess")
    if chosen is not None:
        preset(chosen)
        tree["input"] = dict(PRESETS[chosen])
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}", fix=nearest(name, known), code="TW-2004")
        if value is None or name == "preprocess":
            continue
        *sections, key = PATHS.get(name, (name,))
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            table[key].update(value)
        else:
            table[key] = dict(value) if isinstance(value, Mapping) else value
    return tree
