"""Does the model know these pictures better under another preprocessing?

A classifier that is fed as it was trained stands out by one score above all others.  The measure is
the top score in standard deviations above the mean of its scores, which does not depend on the
scale of the logits.  It is compared picture by picture between the declared preprocessing and the
usual other ones; a paired t statistic decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

RunFloat = Callable[[Iterable[dict[str, Array]]], Iterable[Mapping[str, Array]]]
"""A float model over several feeds: their outputs, in the same order."""

FEWEST_CLASSES = 20
SCREENED = 8
HOPELESS_T, SCREEN_T, SURE_T = -0.5, 0.8, 2.4
"""After half of the screened pictures, after all of them, and after all pictures.  EfficientNet on
random sets of 32 photographs: what is better than a wrong declaration is hopeless in 2 % of them,
and the right declaration is rid of most variants there."""
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

    All are tried on four pictures, those that are not worse on eight, and the best of them on all,
    so that a right declaration costs about 25 runs.

    Args:
        pictures: u8 RGB of the model's size, as in `Sample.pixels`.
        description: the model's only input.
        run_float: the float model.
    """
    if not pictures:
        return None
    few = pictures[:: max(1, len(pictures) // SCREENED)][:SCREENED]
    half, rest = few[::2], few[1::2]
    outputs = list(_outputs(description, half, run_float))
    name = _classifier_output(outputs[0])
    if name is None:
        return None

    def confidence(form: InputDescription, some: Sequence[U8]) -> F64:
        return _confidence(_outputs(form, some, run_float), name)

    base = _confidence(outputs, name)
    tried = [(label, v, confidence(v, half) - base) for label, v in variants(description)]
    hopeful = [(label, v, gain) for label, v, gain in tried if _t(gain) > HOPELESS_T]
    if not hopeful:
        return None
    base = confidence(description, rest)
    gains = [
        (_t(np.append(gain, confidence(v, rest) - base)), label, v) for label, v, gain in hopeful
    ]
    promising = max(gains, key=lambda g: g[0])
    if promising[0] < SCREEN_T:
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


def _outputs(
    form: InputDescription, pictures: Sequence[U8], run_float: RunFloat
) -> Iterable[Mapping[str, Array]]:
    return run_float({form.name: normalise_picture(p, form)} for p in pictures)


def _confidence(outputs: Iterable[Mapping[str, Array]], name: str) -> F64:
    rows = [found[name].reshape(1, -1) for found in outputs]
    return output_confidence(np.concatenate(rows)) if rows else np.empty(0)


def _classifier_output(outputs: Mapping[str, Array]) -> str | None:
    """The name of the output that holds class scores, if there is one."""
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
