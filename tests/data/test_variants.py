"""Trying other preprocessings on a classifier that knows its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from tilewright.config import InputSpec, preset
from tilewright.data import InputDescription, preprocess
from tilewright.data.variants import better_preprocessing, output_confidence, variants

SIDE, CLASSES = 12, 40
Run = Callable[[Iterable[dict[str, Any]]], Iterable[Mapping[str, Any]]]


def describe(spec: InputSpec) -> InputDescription:
    return InputDescription("x", (1, 3, SIDE, SIDE), np.dtype(np.float32), spec)


def pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(CLASSES)]


def classifier(
    trained: InputSpec, output: Callable[[Any], Any] = lambda z: z
) -> tuple[Run, list[int]]:
    """Scores by closeness to one prototype per class, prepared with the right preprocessing."""
    prototypes = np.stack(
        [preprocess(p, trained, (1, 3, SIDE, SIDE), np.float32).reshape(-1) for p in pictures()]
    )
    calls = [0]

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        calls[0] += 1
        distance = np.abs(prototypes - feeds["x"].reshape(1, -1)).mean(axis=1)
        return {"scores": output(-10 * np.tanh(distance)[None])}

    return lambda several: map(run, several), calls


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max())
    return e / e.sum()


@pytest.mark.parametrize("name", ["imagenet", "tf", "lite"])
@pytest.mark.parametrize("output", [lambda z: z, softmax, lambda z: z[:, :, None, None]])
def test_right_declaration_is_quiet_and_cheap(name: str, output: Any) -> None:
    run, calls = classifier(preset(name), output)
    assert better_preprocessing(pictures()[:32], describe(preset(name)), run) is None
    assert calls[0] <= 4 * 6


@pytest.mark.parametrize(
    ("trained", "declared", "advice"),
    [
        ({"preset": "imagenet"}, {"preset": "none"}, "ImageNet"),
        ({"preset": "tf"}, {"preset": "none"}, "127.5"),
        ({"std": 255}, {"preset": "none"}, "x / 255"),
        ({"preset": "none"}, {"preset": "tf"}, "as they are"),
        ({"preset": "imagenet"}, {"preset": "imagenet", "color": "BGR"}, "RGB instead of BGR"),
    ],
)
def test_wrong_declarations_name_the_better_one(
    trained: dict[str, Any], declared: dict[str, Any], advice: str
) -> None:
    run, _ = classifier(InputSpec(**trained))
    warning = better_preprocessing(pictures()[:32], describe(InputSpec(**declared)), run)
    assert warning is not None and warning.code == "other-preprocessing"
    assert advice in warning.text and "t = " in warning.text


def test_models_that_are_no_classifiers_are_left_alone() -> None:
    def run(several: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        return ({"boxes": np.zeros((1, 40, 4)), "few": np.zeros((1, 2))} for _ in several)

    assert better_preprocessing(pictures(), describe(preset("tf")), run) is None
    assert better_preprocessing([], describe(preset("tf")), run) is None


def test_variants_leave_out_what_is_declared() -> None:
    labels = [label for label, _ in variants(describe(preset("lite")))]
    assert labels == [
        "BGR instead of RGB",
        "pixels on 0..255 as they are",
        "x / 255",
        "ImageNet's mean and std",
    ]
    grey = InputDescription("x", (1, 1, 8, 8), np.dtype(np.float32), InputSpec())
    assert [label for label, _ in variants(grey)] == ["x / 255", "(x - 127.5) / 127.5"]


def test_confidence_ignores_scale_and_softmax() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 50))
    base = output_confidence(logits)
    np.testing.assert_allclose(output_confidence(3 * logits + 1), base)
    np.testing.assert_allclose(output_confidence(np.stack([softmax(z) for z in logits])), base)
