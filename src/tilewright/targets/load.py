"""Reads target descriptions: the chips that come with Tilewright and files of the user's own.

A description is TOML.  Every number is a table `{ value, unit, source, note }`, so that no figure
stands without its origin; names, switches and types are plain values.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from tilewright.errors import ConfigError, nearest
from tilewright.targets.description import (
    MatrixRates,
    NumericRules,
    Origin,
    Target,
    VectorRates,
)

SOURCES = ("published", "fitted", "assumed")

UNITS = {
    "modes": "group",
    "clock_hz": "Hz",
    "peak_tops": "TOPS",
    "sram_bytes": "byte",
    "alignment": "byte",
    "weight_window_bytes": "byte",
    "ddr_bytes_per_second": "byte/s",
    "ddr_burst_bytes": "byte",
    "ddr_row_bytes": "byte",
    "transfer_seconds": "s",
    "instruction_seconds": "s",
    "operator_seconds": "s",
    "run_seconds": "s",
    "matrix.convolution": "MAC/s",
    "matrix.dense": "MAC/s",
    "matrix.depthwise": "MAC/s",
    "matrix.input_step": "channel",
    "matrix.output_step": "channel",
    "matrix.wide_factor": "1",
    "vector.table": "element/s",
    "vector.softmax": "element/s",
    "vector.copy": "byte/s",
    "vector.output": "byte/s",
    "vector.pool": "element/s",
    "vector.elementwise": "element/s",
}
"""The unit that each number is given in."""

MAY_BE_ZERO = {
    "weight_window_bytes", "ddr_row_bytes", "transfer_seconds", "instruction_seconds",
    "operator_seconds", "run_seconds",
}  # fmt: skip

INTEGERS = {
    "modes", "sram_bytes", "alignment", "weight_window_bytes", "ddr_burst_bytes", "ddr_row_bytes",
    "matrix.input_step", "matrix.output_step",
}  # fmt: skip

TYPE_NAMES = ("u8", "s8", "s16")


@cache
def target_names() -> tuple[str, ...]:
    """Names of the chips that come with Tilewright, in alphabetical order."""
    files = resources.files("tilewright.targets").iterdir()
    return tuple(sorted(f.name[:-5] for f in files if f.name.endswith(".toml")))


def load_target(name: str | Path) -> Target:
    """A chip by name, or a description file of the user's (anything that ends in .toml).

    Raises:
        ConfigError: the name is unknown, or the file is missing or wrong; file and key are named.
    """
    if str(name).endswith(".toml"):
        return _load_file(Path(name))
    if str(name) not in target_names():
        raise ConfigError(
            f"there is no target {str(name)!r}",
            fix=nearest(str(name), target_names()),
            code="TW-2020",
        )
    return _load_builtin(str(name))


@cache
def _load_builtin(name: str) -> Target:
    text = (resources.files("tilewright.targets") / f"{name}.toml").read_text("utf-8")
    return parse_target(text, f"{name}.toml")


def _load_file(path: Path) -> Target:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"cannot read the target description {path}: {reason}",
            fix="give a target's name or a TOML file",
            code="TW-2020",
        ) from None
    return parse_target(text, str(path))


def parse_target(text: str, where: str) -> Target:
    """A description from its TOML text; `where` names the file in errors.

    Raises:
        ConfigError: naming the file and the key.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}", code="TW-2021") from None
    return _Reader(where).target(tree)


class _Reader:
    """Turns the tree of one file into a Target, and every mismatch into a sentence."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.origins: dict[str, Origin] = {}

    def target(self, tree: dict[str, Any]) -> Target:
        modes = self.modes(self.table(tree, "modes"))
        prose: dict[str, Any] = {key: self.text(tree, key) for key in _PROSE}
        machine_keys = {*_MACHINE_NUMBERS, "matrix", "vector", "vector_overlap"}
        known = {*prose, "modes", "numeric"} | (machine_keys if modes else set())
        self.refuse_unknown(tree, known, "")
        return Target(
            **prose,
            groups=max(modes.values(), default=0),
            modes=modes,
            **(self.machine(tree) if modes else _NO_MACHINE),
            numeric=self.rules(self.table(tree, "numeric")),
            origins=self.origins,
        )

    def modes(self, table: dict[str, Any]) -> dict[str, int]:
        return {mode: int(self.number(v, f"modes.{mode}", "modes")) for mode, v in table.items()}

    def machine(self, tree: dict[str, Any]) -> dict[str, Any]:
        numbers = {k: self.number(self.get(tree, k, k), k, k) for k in _MACHINE_NUMBERS}
        return {
            **numbers,
            "vector_overlap": self.switch(tree, "vector_overlap"),
            "matrix": MatrixRates(**self.rates(tree, "matrix", MatrixRates)),
            "vector": VectorRates(**self.rates(tree, "vector", VectorRates)),
        }

    def rates(self, tree: dict[str, Any], section: str, record: type[Any]) -> dict[str, Any]:
        table = self.table(tree, section)
        names = [f.name for f in fields(record)]
        self.refuse_unknown(table, set(names), f"{section}.")
        keys = {name: f"{section}.{name}" for name in names}
        return {n: self.number(self.get(table, n, k), k, k) for n, k in keys.items()}

    def rules(self, table: dict[str, Any]) -> NumericRules:
        self.refuse_unknown(table, {f.name for f in fields(NumericRules)}, "numeric.")
        rules = NumericRules(
            activation_types=self.types(table, "activation_types"),
            default_activation=self.text(table, "default_activation", "numeric."),
            symmetric=self.switch(table, "symmetric", "numeric."),
            weight_types=self.types(table, "weight_types"),
            per_channel=self.switch(table, "per_channel", "numeric."),
            per_channel_allowed=self.switch(table, "per_channel_allowed", "numeric."),
            power_of_two=self.switch(table, "power_of_two", "numeric."),
            concat_same_scale=self.switch(table, "concat_same_scale", "numeric."),
            rounding=self.text(table, "rounding", "numeric."),
        )
        if rules.default_activation not in rules.activation_types:
            self.fail("numeric.default_activation", "is not among activation_types")
        if rules.per_channel and not rules.per_channel_allowed:
            self.fail("numeric.per_channel", "contradicts per_channel_allowed")
        return rules

    def number(self, entry: Any, key: str, kind: str) -> float | int:
        """The value of `{ value, unit, source, note }`, checked; its origin is kept."""
        if not isinstance(entry, dict):
            self.fail(key, "needs the form { value, unit, source, note }")
        self.refuse_unknown(entry, {"value", "unit", "source", "note"}, f"{key}.")
        value = self.get(entry, "value", f"{key}.value")
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.fail(f"{key}.value", "is not a number")
        if value < 0 or (value == 0 and kind not in MAY_BE_ZERO):
            self.fail(f"{key}.value", "must be positive")
        if kind in INTEGERS and value != int(value):
            self.fail(f"{key}.value", "must be a whole number")
        if math.isinf(value) and not kind.startswith("vector."):
            self.fail(f"{key}.value", "must be finite")
        if entry.get("unit") != UNITS[kind]:
            self.fail(f"{key}.unit", f"must be {UNITS[kind]!r}")
        if entry.get("source") not in SOURCES:
            self.fail(f"{key}.source", f"must be one of {', '.join(SOURCES)}")
        note = entry.get("note", "")
        if not isinstance(note, str):
            self.fail(f"{key}.note", "is not text")
        self.origins[key] = Origin(UNITS[kind], entry["source"], note)
        return int(value) if kind in INTEGERS else float(value)

    def types(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        value = self.get(table, key, f"numeric.{key}")
        if not isinstance(value, list) or not value or any(v not in TYPE_NAMES for v in value):
            self.fail(f"numeric.{key}", f"must list types of {', '.join(TYPE_NAMES)}")
        return tuple(value)

    def table(self, tree: dict[str, Any], key: str) -> dict[str, Any]:
        value = self.get(tree, key, key)
        if not isinstance(value, dict):
            self.fail(key, "must be a table")
        return value

    def text(self, tree: dict[str, Any], key: str, prefix: str = "") -> str:
        value = self.get(tree, key, prefix + key)
        if not isinstance(value, str) or not value:
            self.fail(prefix + key, "must be text")
        return value

    def switch(self, tree: dict[str, Any], key: str, prefix: str = "") -> bool:
        value = self.get(tree, key, prefix + key)
        if not isinstance(value, bool):
            self.fail(prefix + key, "must be true or false")
        return value

    def get(self, tree: dict[str, Any], key: str, path: str) -> Any:
        if key not in tree:
            self.fail(path, "is missing")
        return tree[key]

    def refuse_unknown(self, tree: dict[str, Any], known: set[str], prefix: str) -> None:
        for key in tree:
            if key not in known:
                self.fail(prefix + key, f"is not a key; {nearest(key, known)}")

    def fail(self, key: str, reason: str) -> NoReturn:
        raise ConfigError(f"{self.where}: {key} {reason}", code="TW-2021")


_PROSE = ("name", "title", "vendor")

_MACHINE_NUMBERS = tuple(k for k in UNITS if "." not in k and k != "modes")

_NO_MACHINE: dict[str, Any] = {
    **dict.fromkeys(_MACHINE_NUMBERS, 0),
    "vector_overlap": False,
    "matrix": MatrixRates(),
    "vector": VectorRates(),
}
