"""The published picture sets, made from small stand-ins for the assets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tilewright.assets import own_table
from tilewright.assets.pictures import calibration_views, central_view, load_views
from tilewright.errors import DataError


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_ASSETS", str(tmp_path))
    rng = np.random.default_rng(0)
    for entry in own_table().values():
        if entry.name.startswith("photo-"):
            path = tmp_path / entry.target
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    return tmp_path


def test_calibration_views_are_fixed_and_leave_the_cat_out(photos: Path) -> None:
    views = calibration_views(16)
    assert views.pixels.shape == (32, 16, 16, 3) and views.pixels.dtype == np.uint8
    assert (views.labels == -1).all() and len(set(views.names)) == 32
    assert not any("chelsea" in name for name in views.names)
    np.testing.assert_array_equal(calibration_views(16).pixels, views.pixels)
    np.testing.assert_array_equal(calibration_views(16, 8).pixels, views.pixels[:8])
    (photos / "images" / "photos" / "another.png").write_bytes(b"ignored")
    assert calibration_views(16).names == views.names


def test_central_view_takes_seven_eighths_of_the_shorter_side() -> None:
    picture = np.zeros((64, 96, 3), dtype=np.uint8)
    picture[6:58, 22:74] = 255
    inner = central_view(Image.fromarray(picture), 56)
    assert (inner[4:-4, 4:-4] == 255).all() and (inner[0] == 0).all()


def test_sets_without_assets_tell_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_ASSETS", str(tmp_path))
    for name, asset in (("pictures", "imagenet-20"), ("tiny", "tiny-imagenet-500")):
        with pytest.raises(DataError, match=f"tilewright fetch {asset}"):
            load_views(name, 8)
    with pytest.raises(DataError, match="no picture set"):
        load_views("photos", 8)
