"""The build configuration: defaults, layers, canonical text, errors with the key's path."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.config import (
    PRESETS,
    BuildConfig,
    load_config,
    merge_layers,
    preset,
    validate_config,
)
from tilewright.config_template import commented_template
from tilewright.errors import ConfigError
from tilewright.toml_writer import toml_text


def make(**keys: Any) -> BuildConfig:
    return validate_config({"target": "ax650n", **keys})


def test_defaults() -> None:
    config = make()
    assert config.npu_modes == ("NPU1",)
    assert config.quantization.bias_correction and config.quantization.activations is None
    assert config.quantization.outputs == "s16"
    assert config.calibration.samples == 32


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fill_what_is_not_given(name: str) -> None:
    config = make(input={"preset": name, "color": "BGR"})
    assert config.input == preset(name).model_copy(update={"color": "BGR"})
    assert make(input={"preset": name, "std": 3}).input.std == 3


def test_input_of_its_own_overrides_only_what_it_gives() -> None:
    config = make(input={"preset": "imagenet"}, inputs={"x": {"color": "BGR"}})
    own = config.input_spec("x")
    assert own.color == "BGR" and own.mean == preset("imagenet").mean
    assert config.input_spec("other").color is None


def test_layers_merge_table_by_table() -> None:
    merged = merge_layers(
        {"target": "a", "calibration": {"samples": 8, "data": "x"}},
        {"target": "b", "calibration": {"samples": 9}},
    )
    assert merged == {"target": "b", "calibration": {"samples": 9, "data": "x"}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "'target' is missing"),
        ({"calibraton": {}}, "unknown key 'calibraton'; did you mean 'calibration'?"),
        ({"target": "t", "input": {"mena": 1}}, "unknown key 'input.mena'; did you mean 'mean'?"),
        ({"target": "t", "inputs": {"a": {"resize": "crp"}}},
         "inputs.a.resize cannot be 'crp'; did you mean 'crop'?"),
        ({"target": "t", "input": {"preset": "imgnet"}}, "did you mean 'imagenet'?"),
        ({"target": "t", "input": {"std": 0}}, "input.std: must be above zero"),
        ({"target": "t", "input": {"mean": [1, 2, 3], "std": [1, 2]}}, "different numbers of"),
        ({"target": "t", "input": {"mean": "black"}}, "input.mean: "),
        ({"target": "t", "quantization": {"overrides": [{"op": "Conv", "activation": "s16"}]}},
         "'quantization.overrides.0.activation'; did you mean 'activations'?"),
        ({"target": "t", "quantization": {"overrides": [{}]}}, "give either name (one node) or op"),
        ({"target": "t", "input_shapes": {"x": [0, 3]}}, "positive dimensions"),
        ({"target": "t", "calibration": {"samples": 0}}, "calibration.samples: "),
        ({"target": "t", "npu_modes": "NPU1"}, "npu_modes: "),
    ],
)  # fmt: skip
def test_one_line_that_names_the_key(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_config(data, "build.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("build.toml: ") and "\n" not in str(caught.value)


def test_toml_and_json_files_load_alike(tmp_path: Path) -> None:
    data = {"target": "cpu", "input": {"mean": [1.5, 2, 3]}, "input_shapes": {"x:0": [1, 3, 4, 4]}}
    (tmp_path / "c.json").write_text(json.dumps(data))
    (tmp_path / "c.toml").write_text(toml_text(data))
    assert load_config(tmp_path / "c.json") == load_config(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.toml", None, "cannot read configuration"),
        ("broken.toml", b"target = ", "broken.toml"),
        ("list.json", b"[1]", "not a table"),
        ("binary.toml", b"\xff\xfe\0", "not UTF-8"),
    ],
)
def test_unusable_files(name: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path / name)


def test_canonical_text_reads_back_and_hides_folders() -> None:
    config = make(
        input={"preset": "lite"},
        inputs={"b": {"color": "BGR"}, "a/0": {"kind": "tensor"}},
        calibration={"data": "/somewhere/pictures.tar"},
        quantization={"overrides": [{"op": "Conv", "activations": "s16"}]},
    )
    text = config.canonical()
    assert "/somewhere" not in text and 'data = "pictures.tar"' in text
    again = validate_config(tomllib.loads(text))
    assert again.canonical() == text
    assert again.input_spec("b") == config.input_spec("b")
    assert again.quantization == config.quantization


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    a = make(inputs={"a": {"mean": 1}, "b": {}}, input_shapes={"x": [1], "y": [2]})
    b = make(input_shapes={"y": [2], "x": [1]}, inputs={"b": {}, "a": {"mean": 1}})
    assert a.canonical() == b.canonical()


TREES = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.lists(st.integers(0, 9), max_size=3),
    lambda inner: st.dictionaries(
        st.text(st.characters(codec="ascii"), max_size=4), inner, max_size=3
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(codec="ascii"), max_size=4), TREES, max_size=4))
def test_toml_text_is_read_back_as_it_was(tree: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(tree)) == tree


def test_template_is_valid_and_mentions_every_key() -> None:
    text = commented_template(
        "ax650n", {"x": [None, 3, 8, 8], "y z": [1, 2]}, model="m.onnx", preset="tf"
    )
    config = validate_config(tomllib.loads(text))
    assert config.input.mean == 127.5 and config.input_shapes == {"x": (1, 3, 8, 8)}
    for section in (config.input, config.calibration, config.quantization, config.compile):
        for name in type(section).model_fields:
            assert f"{name} = " in text


def test_template_leaves_free_sizes_to_the_user() -> None:
    text = commented_template("ax650n", {"x": [None, 3, None, 8]})
    assert "# x = [1, 3, 0, 8]" in text
    assert validate_config(tomllib.loads(text)).input_shapes == {}


def test_template_examples_are_valid_when_switched_on() -> None:
    text = commented_template("ax650n", {"x": [1, 3, 224, 224]})
    lines = (line.removeprefix("# ") if " = " in line else line for line in text.splitlines())
    assert validate_config(tomllib.loads("\n".join(lines))).input_shapes == {"x": (1, 3, 224, 224)}
