"""Does the model know these pictures better under another preprocessing?

A classifier that is fed as it was trained stands out by one score above all others.  The measure is
the top score in standard deviations above the mean of its scores, which does not depend on the
scale of the logits.  It is compared picture by picture between the declared preprocessing and the
usual other ones; a paired t statistic decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.config import IMAGENET_MEAN, IMAGENET_STD
from tilewright.data.checks import CalibrationWarning
from tilewright.data.preprocess import (
    U8,
    Array,
    InputDescription,
    image_form,
    normalise_picture,
    pixels_to_table,
)
from tilewright.data.statistics import F64

RunFloat = Callable[[dict[str, Array]], Mapping[str, Array]]

FEWEST_CLASSES = 20
SCREENED = 8
SCREEN_T, SURE_T = 0.8, 2.4
SMALLEST_GAIN = 0.02
SAME_TABLE = 0.05


def output_confidence(logits: Array) -> F64:
    """How far each row's top score stands out: [n, classes] -> [n], in deviations of its scores.

    Probabilities are taken back to logits.
    """
    scores = logits.astype(np.float64)
    if (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        scores = np.log(np.maximum(scores, 1e-12))
    deviation = np.maximum(scores.std(axis=1), 1e-12)
    confidence: F64 = (scores.max(axis=1) - scores.mean(axis=1)) / deviation
    return confidence


def better_preprocessing(
    pictures: Sequence[U8], description: InputDescription, run_float: RunFloat
) -> CalibrationWarning | None:
    """Try the usual preprocessings on fitted pictures; warn when one is clearly better.

    All are tried on a few pictures, and only the best one on all of them, so that a right
    declaration costs about six runs for each of the first eight pictures.

    Args:
        pictures: u8 RGB of the model's size, as in `Sample.pixels`.
        description: the model's only input.
        run_float: the float model, feeds by name to outputs by name.
    """
    name = _classifier_output(pictures[:1], description, run_float)
    if name is None:
        return None

    def confidence(form: InputDescription, some: Sequence[U8]) -> F64:
        feeds = ({form.name: normalise_picture(p, form)} for p in some)
        rows = [run_float(feed)[name].reshape(1, -1) for feed in feeds]
        return output_confidence(np.concatenate(rows))

    few = pictures[:: max(1, len(pictures) // SCREENED)][:SCREENED]
    base = confidence(description, few)
    gains = [(_t(confidence(v, few) - base), label, v) for label, v in variants(description)]
    promising = max(gains, key=lambda g: g[0], default=None)
    if promising is None or promising[0] < SCREEN_T:
        return None
    _, label, variant = promising
    declared, other = confidence(description, pictures), confidence(variant, pictures)
    t, gain = _t(other - declared), float(other.mean() / max(declared.mean(), 1e-9) - 1)
    if t < SURE_T or gain < SMALLEST_GAIN:
        return None
    return CalibrationWarning(
        "other-preprocessing",
        f"input {description.name!r}: with {label} the top class stands out {other.mean():.2f}"
        f" deviations instead of {declared.mean():.2f} on {len(pictures)} pictures (t = {t:.1f}):"
        " check mean, std and color against the model's training",
    )


def variants(description: InputDescription) -> Iterator[tuple[str, InputDescription]]:
    """The other channel order, and the usual normalisations that differ from the declared one."""
    form = image_form(description)
    spec = description.spec

    def changed(**keys: object) -> InputDescription:
        return replace(description, spec=spec.model_copy(update=keys))

    if form.color in ("RGB", "BGR"):
        swapped = "BGR" if form.color == "RGB" else "RGB"
        yield f"{swapped} instead of {form.color}", changed(color=swapped)
    declared = pixels_to_table(spec, form.channels)
    for label, mean, std in _normalisations(form.color):
        variant = changed(mean=mean, std=std)
        table = pixels_to_table(variant.spec, form.channels)
        if np.abs(table - declared).max() > SAME_TABLE * np.ptp(declared):
            yield label, variant


def _normalisations(color: str) -> Iterator[tuple[str, object, object]]:
    yield "pixels on 0..255 as they are", 0.0, 1.0
    yield "x / 255", 0.0, 255.0
    yield "(x - 127.5) / 127.5", 127.5, 127.5
    if color != "GRAY":
        order = slice(None, None, -1 if color == "BGR" else 1)
        yield "ImageNet's mean and std", IMAGENET_MEAN[order], IMAGENET_STD[order]


def _classifier_output(
    pictures: Sequence[U8], description: InputDescription, run_float: RunFloat
) -> str | None:
    """The name of the output that holds class scores, if there is one."""
    if not pictures:
        return None
    outputs = run_float({description.name: normalise_picture(pictures[0], description)})
    for name, value in outputs.items():
        flat = value.ndim >= 2 and value.shape[0] == 1 and value.size == max(value.shape)
        if flat and value.size >= FEWEST_CLASSES:
            return name
    return None


def _t(difference: F64) -> float:
    """The t statistic of a mean difference above zero."""
    n = difference.size
    if n < 2:
        return 0.0
    error = float(difference.std(ddof=1)) / np.sqrt(n)
    return float(difference.mean() / max(error, 1e-9))
