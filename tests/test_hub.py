"""What of the hub's export does not need torch; the rest is in tests/hub."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.errors import EnvironmentFault
from tilewright.hub import _preprocessing, export_classifier


def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EnvironmentFault, match=r"tilewright\[hub\]"):
        export_classifier("some/name", tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_a_processor_becomes_the_input_section() -> None:
    processor = SimpleNamespace(
        do_rescale=True, rescale_factor=1 / 255, do_normalize=True,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225], resample=3,
        size={"shortest_edge": 256}, do_center_crop=True,
    )  # fmt: skip
    found = _preprocessing(processor, (224, 224))
    assert found["mean"] == pytest.approx([123.675, 116.28, 103.53])
    assert found["std"] == pytest.approx([58.395, 57.12, 57.375])
    assert (found["resize"], found["crop_share"]) == ("crop", 0.875)
    assert found["interpolation"] == "bicubic"


def test_a_processor_that_only_scales() -> None:
    processor = SimpleNamespace(do_normalize=False, size={"height": 32, "width": 32})
    found = _preprocessing(processor, (32, 32))
    assert (found["mean"], found["std"], found["resize"]) == (0.0, 255.0, "stretch")
