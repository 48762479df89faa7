"""The trained Swin of examples/, built whole; it is the transformer with real weights at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import tilewright

EXAMPLE = Path(__file__).parents[1] / "examples" / "tiny_swin"
MODEL = EXAMPLE / "tiny_swin.onnx"
SIZE = 32
MEAN = [125.307, 122.961, 113.8575]
STD = [62.985, 62.0925, 66.708]


def pictures(sheet: Path) -> list[Image.Image]:
    """The pictures of 32x32 that a sheet holds, row by row."""
    with Image.open(sheet) as whole:
        return [
            whole.crop((left, top, left + SIZE, top + SIZE))
            for top in range(0, whole.height, SIZE)
            for left in range(0, whole.width, SIZE)
        ]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tilewright.Build:
    """Built with every other picture; the build compares the three executions."""
    folder = tmp_path_factory.mktemp("swin")
    for name, chosen in (("calibration", slice(0, None, 2)), ("unseen", slice(1, None, 2))):
        (folder / name).mkdir()
        for number, picture in enumerate(pictures(EXAMPLE / "pictures.png")[chosen]):
            picture.save(folder / name / f"{number:02}.png")
    return tilewright.build(
        MODEL,
        target="ax650n",
        calibration=folder / "calibration",
        output=folder / "out",
        mean=MEAN,
        std=STD,
    )


def test_the_published_model_is_small_and_valid() -> None:
    assert MODEL.stat().st_size <= 6_000_000
    model = onnx.load(MODEL)
    onnx.checker.check_model(model, full_check=True)
    parameters = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    assert 500_000 <= parameters <= 1_500_000
    assert [value.name for value in model.graph.input] == ["image"]
    assert [value.name for value in model.graph.output] == ["logits"]


def test_nothing_is_left_to_the_cpu(built: tilewright.Build) -> None:
    report = built.report()
    assert report.nodes_cpu == ()
    assert report.sqnr_db["logits"] > 28


def test_unseen_pictures_keep_their_class(built: tilewright.Build) -> None:
    exact = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    integer = tilewright.InferenceSession(built.compiled)
    wanted, found = [], []
    for path in sorted((built.folder.parent / "unseen").iterdir()):
        with Image.open(path) as picture:
            pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[None]
        image = (pixels - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
        feeds = {"image": image.astype(np.float32)}
        wanted.append(int(np.argmax(exact.run(None, feeds)[0])))
        found.append(int(np.argmax(integer.run(None, feeds)[0])))
    assert len(set(wanted)) > 3
    assert sum(a == b for a, b in zip(wanted, found, strict=True)) >= len(wanted) - 1
