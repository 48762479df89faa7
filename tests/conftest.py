"""Models and pictures small enough for every test."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, settings

from small_models import save_photos, small_classifier

# How fast examples come says how busy the machine is, nothing about the code.
settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """The small classifier as a file."""
    path = tmp_path / "small.onnx"
    onnx.save(small_classifier(), path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty pictures in a folder."""
    return save_photos(tmp_path / "photos")
