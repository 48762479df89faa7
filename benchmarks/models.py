"""The networks that are measured: origin, input shapes and real calibration samples of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import faces
import numpy as np
import numpy.typing as npt
import onnx
import sounds
from drawings import letters, line, page, word
from filetypes import LIBRARY, excerpt
from lines import padded
from pictures import IMAGENET_MEAN, IMAGENET_STD, bgr, planes, rows
from PIL import Image
from texts import VerseRetrieval

from tilewright.assets.cache import asset_path
from tilewright.assets.pictures import calibration_photos, calibration_views

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Samples = Iterator[Array]
"""Of a network with one input."""
Sampler = Callable[[int], Iterator[tuple[Array, ...]]]

SEED = 2024


@dataclass(frozen=True)
class Network:
    """A network.

    Args:
        name: of the asset or of the structure.
        shapes: static shape of each input, in the model's order.
        samples: yields that many samples, an array for each input, none of which is scored.
        load: the ONNX model as its author published it.
        trained: whether its weights mean anything.
        origin: where a structure comes from.
    """

    name: str
    shapes: tuple[Shape, ...]
    samples: Sampler
    load: Callable[[], onnx.ModelProto]
    trained: bool = True
    origin: str = ""


def input_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the inputs that are fed; older models list their constants among the inputs."""
    constants = {t.name for t in model.graph.initializer}
    return tuple(i.name for i in model.graph.input if i.name not in constants)


# Calibration samples, one function for each kind of preprocessing.


def _views(size: int, mean: Any, std: Any, count: int) -> Samples:
    for view in calibration_views(size, count).pixels:
        yield planes(view, mean, std)


def _bgr_rows(size: int, mean: Any, std: Any, count: int) -> Samples:
    for view in calibration_views(size, count).pixels:
        yield rows(bgr(view), mean, std)


def _wide_views(width: int, height: int, count: int) -> Samples:
    for view in calibration_views(width, count).pixels:
        small = Image.fromarray(view).resize((width, height), Image.Resampling.BILINEAR)
        yield planes(small, 127, 128)


def _letters(count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for view in calibration_views(416, count).pixels:
        yield planes(bgr(letters(Image.fromarray(view), rng)[0]), 0, 1)


def _pages(size: int, count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for index, view in enumerate(calibration_views(size, count).pixels):
        picture = page(rng, size) if index % 2 else Image.fromarray(view)
        yield planes(picture, 127.5, 127.5)


def _padded_lines(count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for index in range(count):
        text = line(rng, worn=index % 2 == 1)
        text = text.rotate(180) if index % 4 > 1 else text
        value = planes(text.resize((min(192, text.width), 48)), 127.5, 127.5)
        yield np.pad(value, ((0, 0), (0, 0), (0, 0), (0, 192 - value.shape[3])))


def _stretched_lines(count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for index in range(count):
        text = line(rng, worn=index % 2 == 1)
        text = text.rotate(180) if index % 4 > 1 else text
        yield planes(text.resize((160, 80)), IMAGENET_MEAN, IMAGENET_STD)


def _recognised_lines(count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for index in range(count):
        yield padded(line(rng, worn=index % 2 == 1))


def _words(count: int) -> Samples:
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        grey = word(rng).resize((149, 64), Image.Resampling.BILINEAR)
        yield np.asarray(grey, np.float32)[None, None] / np.float32(255)


def _excerpts(count: int) -> Samples:
    """Modules of the standard library and photographs in turn."""
    modules = sorted(LIBRARY.glob("*.py"))[60:]
    paths = (path for pair in zip(modules, cycle(calibration_photos())) for path in pair)
    yield from map(excerpt, islice(paths, count))


def _verses(count: int) -> Iterator[tuple[Array, ...]]:
    return islice(VerseRetrieval().calibration(), count)


def _faces(size: int, margin: float, mean: Any, std: Any, count: int) -> Samples:
    for face in faces.crops(size, margin, count):
        yield planes(face, mean, std)


def _grey_eyes(count: int) -> Samples:
    for eye in faces.eyes(24, count):
        yield np.asarray(eye.convert("L"), np.float32)[None, None] / np.float32(255)


def _face_rows(height: int, width: int, margin: float, count: int) -> Samples:
    for face in faces.crops(max(height, width), margin, count):
        yield rows(face.resize((width, height)), 127.5, 128)


def _load(name: str) -> onnx.ModelProto:
    return onnx.load(asset_path(name))


def _asset(name: str, shapes: tuple[Shape, ...], samples: Sampler) -> Network:
    return Network(name, shapes, samples, partial(_load, name))


def _real(name: str, shape: Shape, samples: Callable[[int], Samples]) -> Network:
    """A network with one input."""
    return _asset(name, (shape,), partial(_alone, samples))


def _alone(samples: Callable[[int], Samples], count: int) -> Iterator[tuple[Array, ...]]:
    for sample in samples(count):
        yield (sample,)


IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)

REAL: dict[str, Network] = {
    network.name: network
    for network in (
        _real("efficientnet-lite0", (1, 3, 224, 224), partial(_views, 224, 127, 128)),
        _real("efficientnet-lite1", (1, 3, 240, 240), partial(_views, 240, 127, 128)),
        _real("efficientnet-lite0-bn", (1, 3, 224, 224), partial(_views, 224, 127, 128)),
        _real("open-nsfw", (1, 224, 224, 3), partial(_bgr_rows, 224, (104, 117, 123), 1)),
        _real("ultraface-rfb-320", (1, 3, 240, 320), partial(_wide_views, 320, 240)),
        _real("ddddocr-det", (1, 3, 416, 416), _letters),
        _real("ppocrv4-det", (1, 3, 640, 640), partial(_pages, 640)),
        _real("ppocr-cls", (1, 3, 48, 192), _padded_lines),
        _real("ppocrv5-cls", (1, 3, 80, 160), _stretched_lines),
        _real("face-pose", (1, 3, 224, 224), partial(_faces, 224, 1.4, *IMAGENET)),
        _real("face-age", (1, 3, 64, 64), partial(_faces, 64, 1.4, *IMAGENET)),
        _real("face-gender", (1, 3, 64, 64), partial(_faces, 64, 1.4, *IMAGENET)),
        _real("face-liveness", (1, 3, 128, 128), partial(_faces, 128, 2.7, 0, 1)),
        _real("face-eye", (1, 1, 24, 24), _grey_eyes),
        _real("face-expression", (1, 3, 224, 224), partial(_faces, 224, 1.2, 0, 255)),
        _real("mtcnn-pnet", (1, 120, 160, 3), partial(_face_rows, 120, 160, 3.0)),
        _real("mtcnn-rnet", (1, 24, 24, 3), partial(_face_rows, 24, 24, 1.1)),
        _real("mtcnn-onet", (1, 48, 48, 3), partial(_face_rows, 48, 48, 1.1)),
        _asset("minilm-l6", ((1, 128), (1, 128)), _verses),
        _real("vit-s-focus", (1, 3, 224, 224), partial(_views, 224, *IMAGENET)),
        _real("ppocrv4-rec", (1, 3, 48, 480), _recognised_lines),
        _real("magika", (1, 2048), _excerpts),
        _real("ddddocr-rec", (1, 1, 64, 149), _words),
        _asset("silero-vad-static", ((1, 576), (2, 1, 128)), sounds.streamed),
        _asset(
            "silero-vad-sequence",
            ((32, 576), (1, 1, 128), (1, 1, 128)),
            partial(sounds.recordings, 32),
        ),
        _real("oww-melspectrogram", (1, 32_000), partial(sounds.sound, 32_000)),
        _real("oww-embedding", (1, 76, 32, 1), sounds.mel_frames),
        _real("oww-hey-jarvis", (1, 16, 96), sounds.embeddings),
    )
}
