"""Calibration warnings: each fires on its fault and stays quiet on plausible samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilewright.config import IMAGENET_MEAN, IMAGENET_STD, InputSpec, preset
from tilewright.data import InputDescription, Sample, open_samples
from tilewright.data.checks import (
    CalibrationChecks,
    dead_channels,
    first_layer_statistics,
    neighbour_correlation,
    range_set_by_one_sample,
)
from tilewright.data.preprocess import normalise_picture
from tilewright.data.statistics import InputStatistics, channel_statistics

SIDE = 64


def photograph(seed: int) -> np.ndarray:
    """Smooth coloured blobs with some grain: a 1/f-like picture of u8 [SIDE, SIDE, 3]."""
    rng = np.random.default_rng(seed)
    total = np.zeros((SIDE, SIDE, 3))
    for cells, weight in ((3, 1.0), (6, 0.5), (12, 0.25), (SIDE, 0.06)):
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += weight * np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return np.asarray(total / 1.81, np.uint8)


def describe(spec: InputSpec | None = None) -> InputDescription:
    shape = (1, 3, SIDE, SIDE)
    return InputDescription("image", shape, np.dtype(np.float32), spec or preset("imagenet"))


def codes(pictures: list[np.ndarray], spec: InputSpec | None = None) -> set[str]:
    description = describe(spec)
    checks = CalibrationChecks([description])
    for i, pixels in enumerate(pictures):
        feeds = {"image": normalise_picture(pixels, description)}
        checks.add(Sample(str(i), feeds, {"image": pixels}))
    return {w.code for w in checks.warnings()}


GOOD = [photograph(i) for i in range(32)]


@pytest.mark.parametrize("name", ["imagenet", "tf", "lite", "yolo", "none"])
def test_good_set_is_quiet(name: str) -> None:
    assert codes(GOOD, preset(name)) == set()


def test_a_caffe_style_mean_is_quiet() -> None:
    assert codes(GOOD, InputSpec(color="BGR", mean=(104, 117, 123))) == set()


def test_few_samples() -> None:
    assert codes(GOOD[:15]) == {"few-samples"}
    assert codes(GOOD[:16]) == set()


def test_same_picture_again_and_again() -> None:
    assert codes([GOOD[0]] * 32) == {"same-samples"}
    noise = np.random.default_rng(0)
    grainy = [np.clip(GOOD[0] + noise.integers(-3, 4, GOOD[0].shape), 0, 255) for _ in range(32)]
    assert codes([g.astype(np.uint8) for g in grainy]) == {"same-samples"}
    assert codes(GOOD[:28] + GOOD[:4]) == set(), "a few repetitions do no harm"


def test_random_noise() -> None:
    samples = open_samples("random:32", [describe()])
    checks = CalibrationChecks([describe()])
    for sample in samples:
        checks.add(sample)
    assert {w.code for w in checks.warnings()} == {"noise-samples"}
    assert "32 of 32" in str(checks.warnings()[0])
    assert codes(GOOD[:24] + [s.pixels["image"] for s in samples if s.pixels][:8]) == set()


def twice(mean: tuple[float, ...], std: tuple[float, ...]) -> InputSpec:
    """The spec whose formula is that of `mean` and `std` applied two times."""
    pairs = list(zip(mean, std, strict=True))
    return InputSpec(mean=tuple(m + m * s for m, s in pairs), std=tuple(s * s for _, s in pairs))


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        twice(IMAGENET_MEAN, IMAGENET_STD),
        twice((127.0,), (128.0,)),
        InputSpec(std=255.0**2),
    ],
)
def test_implausible_ranges(spec: InputSpec) -> None:
    assert codes(GOOD, spec) == {"input-range"}


def test_arrays_that_were_normalised_before() -> None:
    description = describe(preset("imagenet"))
    plain = describe(InputSpec(kind="image"))
    for feed_description, expected in ((description, {"normalised-twice"}), (plain, set())):
        spec = feed_description.spec
        checks = CalibrationChecks([feed_description])
        for i, pixels in enumerate(GOOD):
            once = normalise_picture(pixels, description)
            mean, std = (np.array(v).reshape(1, -1, 1, 1) for v in (spec.mean, spec.std))
            checks.add(Sample(str(i), {"image": ((once - mean) / std).astype(np.float32)}, None))
        assert {w.code for w in checks.warnings()} == expected


def test_tensors_are_checked_for_number_and_repetition_only() -> None:
    description = InputDescription("x", (1, 5), np.dtype(np.float32), InputSpec())
    for seeds, expected in ((range(32), set()), ([1] * 32, {"same-samples"})):
        checks = CalibrationChecks([description])
        for seed in seeds:
            x = np.random.default_rng(seed).normal(size=(1, 5)).astype(np.float32)
            checks.add(Sample("x", {"x": x}, None))
        assert {w.code for w in checks.warnings()} == expected


def test_every_warning_states_a_number_and_what_to_do() -> None:
    checks = CalibrationChecks([describe(InputSpec(std=255.0**2))])
    for i in range(4):
        feeds = {"image": normalise_picture(GOOD[0], describe())}
        checks.add(Sample(str(i), feeds, {"image": GOOD[0]}))
    for warning in checks.warnings():
        assert any(c.isdigit() for c in warning.text) and ";" in warning.text


def test_first_layer_against_batchnorm_statistics() -> None:
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=32), rng.uniform(0.5, 2, 32)
    std[3] = 0.0  # a dead channel says nothing

    def check(scale: float, shift: float) -> Any:
        return first_layer_statistics(mean + shift * std, std * scale, mean, std)

    assert check(1.1, 0.2) is None
    for scale, shift in ((2.2, 0.0), (0.5, 0.0), (1.0, 1.3), (128.0, 150.0)):
        assert check(scale, shift).code == "input-statistics"
    assert first_layer_statistics(mean, std, mean, np.zeros(32)) is None


def test_range_set_by_one_sample() -> None:
    maxs = np.ones((8, 4))
    mins = -np.ones((8, 4))
    maxs[5, 1] = 9
    mins[2, 2] = -9
    maxs[6, 3], mins[6, 3] = 5, -5
    found = range_set_by_one_sample(mins, maxs, ["a", "b", "c", "d"])
    assert [w.text.split("'")[1] for w in found] == ["b", "c", "d"]
    assert [w.text.split("sample ")[1][0] for w in found] == ["5", "2", "6"]
    assert "5 times as wide" in found[0].text
    assert range_set_by_one_sample(mins[:2], maxs[:2], list("abcd")) == []


def test_dead_channels() -> None:
    warning = dead_channels(np.array([0, 1, 0.0, 2]), "conv1")
    assert warning is not None and "2 of 4 channels" in warning.text
    assert dead_channels(np.ones(4), "conv1") is None
    assert dead_channels(np.array([0.0, 0, 0] + [1] * 9), "conv1") is None, "trained ones do"


def test_neighbour_correlation_of_extremes() -> None:
    assert neighbour_correlation(np.zeros((8, 8), np.float32)) == 1
    board = np.indices((8, 8)).sum(axis=0) % 2
    assert neighbour_correlation(board.astype(np.float32)) == pytest.approx(-1)


def test_streamed_statistics_are_those_of_all_values_at_once() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(100, 3, (1, 3, 5, 7)) for _ in range(6)]
    streamed = InputStatistics(axis=1)
    for part in parts:
        streamed.add(part)
    at_once = channel_statistics(np.concatenate(parts), axis=1)
    assert streamed.total is not None and streamed.total.count == at_once.count == 6 * 35
    np.testing.assert_allclose(streamed.total.mean, at_once.mean, rtol=1e-12)
    np.testing.assert_allclose(streamed.total.std, at_once.std, rtol=1e-12)
    np.testing.assert_array_equal(streamed.total.low, at_once.low)
    np.testing.assert_array_equal(streamed.total.high, at_once.high)
