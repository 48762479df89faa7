"""Target descriptions: the chips that come along, and what a user's own file may get wrong."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path

import pytest

from tilewright.errors import ConfigError
from tilewright.targets import load_target, target_names
from tilewright.targets.load import SOURCES, UNITS, parse_target


def text_of(name: str) -> str:
    return (importlib.resources.files("tilewright.targets") / f"{name}.toml").read_text("utf-8")


@pytest.mark.parametrize("name", target_names())
def test_every_number_has_an_origin(name):
    target = load_target(name)
    assert target.name == name
    expected = {k for k in UNITS if k != "modes"} if target.groups else set()
    assert set(target.origins) == expected | {f"modes.{m}" for m in target.modes}
    assert all(o.source in SOURCES for o in target.origins.values())
    assert target.groups == max(target.modes.values(), default=0)
    assert target.groups == 0 or target.sram_bytes % target.alignment == 0


def test_names_and_modes():
    assert target_names() == ("a311d", "ax650n", "cpu", "tda4vm")
    assert load_target("ax650n").modes == {"NPU1": 1, "NPU2": 2, "NPU3": 3}
    assert load_target("cpu").groups == 0
    with pytest.raises(ConfigError, match=r"no mode 'NPU4'; did you mean 'NPU"):
        load_target("ax650n").mode_groups("NPU4")
    with pytest.raises(ConfigError, match="runs no program"):
        load_target("cpu").mode_groups("NPU1")


def test_unknown_name_gets_the_nearest():
    with pytest.raises(ConfigError, match=r"no target 'ax650'; did you mean 'ax650n'\?"):
        load_target("ax650")


def test_user_file(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(text_of("ax650n").replace('name = "ax650n"', 'name = "mine"'))
    mine = load_target(path)
    assert mine.name == "mine"
    assert mine.digest != load_target("ax650n").digest
    assert load_target(str(path)) == mine
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.toml: No such file"):
        load_target(tmp_path / "nowhere.toml")


def test_digest_counts_values_and_not_prose():
    text = text_of("ax650n")
    digest = parse_target(text, "x").digest
    prose = re.sub(r'note = "[^"]*"', 'note = "other"', text).replace("Axera", "Somebody")
    assert parse_target(prose, "x").digest == digest
    assert parse_target(text.replace("800e6", "800000000"), "x").digest == digest
    assert parse_target(text.replace("1.83e12", "1.84e12"), "x").digest != digest
    assert (
        parse_target(
            text.replace('default_activation = "u8"', 'default_activation = "s8"'), "x"
        ).digest
        != digest
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value = 800e6", "value = -1", r"f\.toml: clock_hz\.value must be positive"),
        ("value = 800e6", "value = inf", "clock_hz.value must be finite"),
        ("value = 800e6", 'value = "fast"', "clock_hz.value is not a number"),
        ('unit = "Hz"', 'unit = "MHz"', "clock_hz.unit must be 'Hz'"),
        (
            'source = "published"',
            'source = "heard"',
            "source must be one of published, fitted, assumed",
        ),
        ("value = 3495232", "value = 0.5", "sram_bytes.value must be a whole number"),
        ("dense = {", "densely = {", r"matrix\.densely is not a key; did you mean 'dense'\?"),
        ("vector_overlap = false", "vector_overlap = 0", "vector_overlap must be true or false"),
        ("[clock_hz]", "[clock]", r"clock is not a key; did you mean 'clock_hz'\?"),
        ("[run_seconds]\nvalue = 51e-6\n", "[run_seconds]\n", "run_seconds.value is missing"),
        ('["s8", "s16"]', '["s4"]', "numeric.weight_types must list types of u8, s8, s16"),
        (
            'default_activation = "u8"',
            'default_activation = "f32"',
            "is not among activation_types",
        ),
        (
            "per_channel_allowed = true",
            "per_channel_allowed = false",
            "contradicts per_channel_allowed",
        ),
        ('name = "ax650n"', "", "name is missing"),
        ('name = "ax650n"', "name = 1", "name must be text"),
        ("[modes]", "[modes", "is not TOML"),
    ],
)
def test_errors_name_file_and_key(old, new, message):
    text = text_of("ax650n")
    assert old in text
    with pytest.raises(ConfigError, match=message) as caught:
        parse_target(text.replace(old, new, 1), "f.toml")
    assert "f.toml" in str(caught.value)
