"""What made an artifact, as a hash, and whether an earlier build's artifact can be taken."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.config import BuildConfig
from tilewright.errors import ModelError
from tilewright.files import sha256_of
from tilewright.report.content import Report
from tilewright.targets import NumericRules


@dataclass(frozen=True)
class Sources:
    """The model's files.

    Attributes:
        sha256: of the ONNX file.
        external: name of each external data file -> its hash.
    """

    sha256: str
    external: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def source_of(model: Path, old: Report | None) -> Sources:
    """Hash the model; an earlier report of the same file tells which data files it has.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        digest = sha256_of(model)
        if old is not None and old.source.get("sha256") == digest:
            names = sorted(old.source["external"])
        else:
            names = _external_names(model)
        return Sources(digest, {name: sha256_of(model.parent / name) for name in names})
    except OSError:
        # The importer says what is wrong with the file, and with the folder that it should be in.
        from tilewright.importer import load

        load(model)
        raise ModelError(f"{model} cannot be read", code="TW-1101") from None


def _external_names(model: Path) -> list[str]:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load(model, load_external_data=False)
    except (DecodeError, ValueError):
        return []  # the importer has the words for it
    return sorted(
        {
            entry.value
            for tensor in proto.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def tool_name() -> str:
    """Name and version, as reports show it."""
    return f"tilewright {__version__}"


@functools.cache
def _tool_digest() -> str:
    """Hash of the package's own sources: another version never takes an old artifact."""
    digest = hashlib.sha256(__version__.encode())
    root = Path(str(resources.files("tilewright")))
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml"):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def content_key(*parts: object) -> str:
    """Hash of plain values and of nothing else: the same on every machine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def key_of(*parts: object) -> str:
    """Hash of plain values and of the tool itself."""
    return content_key(_tool_digest(), *parts)


def calibration_settings(config: BuildConfig, rules: NumericRules) -> list[Any]:
    """What calibration reads of a configuration, the samples apart, and of a chip.

    Of a chip it is only whether there are 16-bit activations, which decides where tensors are
    observed.  Types are not in it, nor parameters of observers: they choose among what was seen.
    """
    quantization = config.quantization
    overrides = [(o.name, o.op, o.observer) for o in quantization.overrides if o.observer]
    return [
        config.calibration.observer,
        overrides,
        quantization.bias_correction,
        quantization.equalization,
        quantization.smoothing,
        quantization.residual_stream if "s16" in rules.activation_types else "same",
    ]


def rules_that_count(rules: NumericRules) -> list[Any]:
    """What quantization reads of a chip: chips that agree in it share their quantized model."""
    return [
        rules.default_activation,
        rules.symmetric,
        rules.weight_types[0],
        rules.per_channel,
        rules.power_of_two,
        rules.concat_same_scale,
        "s16" in rules.activation_types,
    ]


def fresh(old: Report | None, stage: str, key: str, folder: Path, artifact: str | None) -> bool:
    """Whether an earlier build made this with the same key, and its artifact is untouched."""
    before = old.stage(stage) if old is not None else None
    if old is None or before is None or before.key != key:
        return False
    if artifact is None:
        return True
    path = folder / artifact
    return path.is_file() and sha256_of(path) == old.artifacts.get(artifact)
