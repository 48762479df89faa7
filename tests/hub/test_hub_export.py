"""A random Swin of the transformers library, exported by its folder (needs the extra `hub`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from transformers import SwinConfig, SwinForImageClassification, ViTImageProcessor

from tilewright.errors import ModelError
from tilewright.hub import export_classifier


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swin")
    config = SwinConfig(
        image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
        num_labels=10,
    )  # fmt: skip
    SwinForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def test_the_export_is_the_same_function(classifier: Path, tmp_path: Path) -> None:
    found = export_classifier(str(classifier), tmp_path / "swin.onnx")
    assert found.difference < 1e-4
    assert found.shape == (1, 3, 32, 32)
    model = onnx.load(found.path)
    kinds = {node.op_type for node in model.graph.node}
    assert "LayerNormalization" in kinds
    assert not kinds & {"Shape", "Loop", "If", "Constant"}


def test_the_command_prints_the_class_of_a_picture(classifier: Path, tmp_path: Path) -> None:
    picture = tmp_path / "noise.png"
    pixels = np.random.default_rng(1).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(picture)
    output = tmp_path / "swin.onnx"
    words = ["hf-export", str(classifier), "-o", str(output), "-p", str(picture), "--json"]
    command = [sys.executable, "-m", "tilewright", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert 0 <= found["predicted"]["class"] < 10
    assert output.exists() and output.with_suffix(".toml").exists()


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no image classifier"):
        export_classifier(str(tmp_path / "nothing"), tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()
