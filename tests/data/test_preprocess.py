"""Preprocessing: geometry, normalisation, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilewright.config import InputSpec, preset
from tilewright.data import InputDescription, explain, pixels_to_table, preprocess
from tilewright.errors import DataError


def picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def describe(shape: tuple[int, ...], dtype: Any = np.float32, **spec: Any) -> InputDescription:
    return InputDescription("x", shape, np.dtype(dtype), InputSpec(**spec))


@pytest.mark.parametrize(("width", "height"), [(301, 200), (97, 260), (64, 64)])
@pytest.mark.parametrize("size", [32, 48])
def test_lite_is_the_central_square_resized_bicubic(width: int, height: int, size: int) -> None:
    image = picture(width, height)
    side = min(width, height) * 224 / 256
    x, y = (width - side) / 2, (height - side) / 2
    square = Image.fromarray(image).resize(
        (size, size), Image.Resampling.BICUBIC, (x, y, x + side, y + side)
    )
    expected = (np.asarray(square).astype(np.float32) - 127) / 128
    got = preprocess(image, preset("lite"), (1, 3, size, size), np.float32)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got[0], expected.transpose(2, 0, 1))


def test_bgr_and_nhwc_reorder_the_same_values() -> None:
    image = picture(16, 16)
    rgb = preprocess(image, InputSpec(), (1, 3, 16, 16), np.float32)
    bgr = preprocess(image, InputSpec(color="BGR"), (1, 3, 16, 16), np.float32)
    nhwc = preprocess(image, InputSpec(), (1, 16, 16, 3), np.float32)
    np.testing.assert_array_equal(bgr, rgb[:, ::-1])
    np.testing.assert_array_equal(nhwc, rgb.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(nhwc[0], image)


def test_mean_is_in_the_models_channel_order() -> None:
    image = np.full((4, 4, 3), (10, 20, 30), dtype=np.uint8)
    spec = InputSpec(color="BGR", mean=(30, 20, 10))
    assert not preprocess(image, spec, (1, 3, 4, 4), np.float32).any()


def test_grey_uses_the_luma_of_pillow() -> None:
    image = picture(8, 8)
    got = preprocess(image, InputSpec(), (1, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(got[0, 0], np.asarray(Image.fromarray(image).convert("L")))


def test_letterbox_keeps_the_aspect_and_pads_both_sides() -> None:
    image = np.zeros((20, 40, 3), dtype=np.uint8)
    got = preprocess(image, preset("yolo"), (1, 3, 32, 32), np.float32)
    rows = got[0, 0, :, 5]
    pad = np.float32(114 / 255)
    assert (rows[:8] == pad).all() and (rows[24:] == pad).all() and (rows[8:24] == 0).all()


def test_crop_of_a_wide_target_takes_the_largest_box_of_its_shape() -> None:
    image = np.zeros((100, 100, 3), dtype=np.uint8)
    image[25:75] = 200
    spec = InputSpec(resize="crop", crop_share=1.0)
    got = preprocess(image, spec, (1, 3, 10, 20), np.float32)
    assert (got[:, :, 1:-1] == 200).all() and (got > 150).all()


def test_table_and_formula_agree_for_every_pixel_value() -> None:
    spec = preset("imagenet")
    table = pixels_to_table(spec)
    expected = (np.arange(256.0)[:, None] - np.array(spec.mean)) / np.array(spec.std)
    np.testing.assert_array_equal(table, expected.astype(np.float32))
    image = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    stretched = InputSpec(mean=spec.mean, std=spec.std)
    got = preprocess(image, stretched, (1, 3, 1, 256), np.float32)
    np.testing.assert_array_equal(got[0, :, 0].T, table)


def test_integer_input_takes_pixels_and_refuses_fractions_out_of_range() -> None:
    image = picture(4, 4)
    got = preprocess(image, InputSpec(), (1, 4, 4, 3), np.uint8)
    np.testing.assert_array_equal(got[0], image)
    with pytest.raises(DataError, match="integer input"):
        preprocess(image, InputSpec(mean=128), (1, 4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("shape", "spec", "words"),
    [
        ((1, 4, 8, 8), {"layout": "NCHW"}, "4 channels"),
        ((1, 3, 8, 8), {"color": "GRAY"}, "3 channels, and GRAY pictures have 1"),
        ((2, 3, 8, 8), {}, "batch 2"),
        ((1, 10), {}, "pictures cannot fill"),
        ((1, 3, 8, 8), {"mean": (1, 2)}, "3 channels, and mean has 2"),
        ((1, 3, 8, 8), {"size": (9, 8)}, "size 9x8"),
    ],
)
def test_specs_that_contradict_the_shape_are_refused(
    shape: tuple[int, ...], spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        preprocess(picture(8, 8), InputSpec(**spec), shape, np.float32)


def test_explain_states_formula_and_range_per_channel() -> None:
    text = explain(describe((1, 3, 224, 224), preset="imagenet", color="BGR"))
    assert "BGR, NCHW" in text and "0.875 of the shorter side" in text
    assert text.splitlines()[1].strip() == "B: (x - 123.675) / 58.395; 0..255 becomes -2.118..2.249"


@pytest.mark.parametrize(
    ("shape", "image"),
    [((1, 3, 8, 8), True), ((1, 8, 8, 3), True), ((1, 16, 8, 8), False), ((1, 3), False)],
)
def test_kind_is_found_from_the_shape(shape: tuple[int, ...], image: bool) -> None:
    assert describe(shape).is_image is image
