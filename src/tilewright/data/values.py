"""One column of one sample as a source delivers it, and how it becomes a model input."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from tilewright.data.preprocess import (
    U8,
    Array,
    InputDescription,
    fit_picture,
    image_form,
    normalise,
    normalise_picture,
    picture_form,
    to_dtype,
)
from tilewright.errors import DataError

PICTURE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}
)
SAMPLE_SUFFIXES = PICTURE_SUFFIXES | {".npy", ".bin"}


@dataclass(frozen=True)
class Picture:
    """A decoded picture: u8 RGB [h, w, 3]."""

    pixels: U8


Value = Picture | Array


def is_sample_file(path: str) -> bool:
    """Whether a folder's or archive's entry is a sample: known suffix, not hidden."""
    pure = PurePosixPath(path)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in pure.parts)
    return not hidden and pure.suffix.lower() in SAMPLE_SUFFIXES


def decode(data: bytes, name: str, description: InputDescription) -> Value:
    """The content of one sample file, by its suffix.

    Args:
        name: shown in errors; its suffix selects the format.

    Raises:
        DataError: the content is not what the suffix says, or does not fit the input.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in PICTURE_SUFFIXES:
        return decode_picture(data, name)
    if suffix == ".npy":
        try:
            array = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError(f"{name}: not a readable .npy array", code="TW-1203") from error
        return as_value(array, description)
    return from_raw(data, name, description)


def decode_picture(data: bytes, name: str) -> Picture:
    """Decode a picture file; greyscale is spread to RGB, transparency dropped."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.mode.startswith(("I", "F")):
                raise DataError(
                    f"{name}: pictures of more than 8 bits per channel are not read",
                    fix="convert it to 8 bits, or give .npy samples",
                    code="TW-1203",
                )
            return Picture(np.asarray(picture.convert("RGB")))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{name}: not a readable picture", fix="remove or replace it", code="TW-1203"
        ) from error


def from_raw(data: bytes, name: str, description: InputDescription) -> Array:
    """Raw little-endian elements of the input's own type and shape."""
    dtype = description.dtype.newbyteorder("<")
    expected = int(np.prod(description.shape)) * dtype.itemsize
    if len(data) != expected:
        raise DataError(
            f"{name}: {len(data)} bytes, and input {description.name!r} takes {expected}"
            f" ({description.dtype} {list(description.shape)})",
            code="TW-1204",
        )
    return np.frombuffer(data, dtype).reshape(description.shape).astype(description.dtype)


def as_value(array: Array, description: InputDescription) -> Value:
    """An array that holds one sample: a u8 [h, w, 3] array for an image input is a picture."""
    if description.is_image and array.dtype == np.uint8:
        squeezed = array[0] if array.ndim == 4 and array.shape[0] == 1 else array
        fits = squeezed.shape == description.shape[1:]
        if squeezed.ndim == 3 and squeezed.shape[2] == 3 and (not fits or _is_nhwc(description)):
            return Picture(squeezed)
    return array


def _is_nhwc(description: InputDescription) -> bool:
    return image_form(description).layout == "NHWC"


def feed(value: Value, description: InputDescription, sample: str) -> tuple[Array, U8 | None]:
    """The model input, and the fitted picture where the value is one.

    Raises:
        DataError: wrong shape, channel count or type, or a NaN or infinity.
    """
    if isinstance(value, Picture):
        pixels = fit_picture(value.pixels, description.spec, picture_form(description))
        return normalise_picture(pixels, description), pixels
    return _feed_array(value, description, sample), None


def _feed_array(array: Array, description: InputDescription, sample: str) -> Array:
    shape = description.shape
    if array.shape != shape and (1, *array.shape) != shape:
        raise _wrong_shape(array, description, sample)
    array = array.reshape(shape)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise _wrong_dtype(array, description, sample)
    _require_finite(array, description, sample)
    if description.is_image and (description.spec.mean, description.spec.std) != (0.0, 1.0):
        axis = 1 if image_form(description).layout == "NCHW" else 3
        return to_dtype(normalise(array, description.spec, axis).astype(np.float32), description)
    if not np.can_cast(array.dtype, description.dtype, "same_kind") and not _u8_pixels(array):
        raise _wrong_dtype(array, description, sample)
    with np.errstate(over="ignore"):
        cast = array.astype(description.dtype)
    _require_finite(cast, description, sample)
    return cast


def _require_finite(array: Array, description: InputDescription, sample: str) -> None:
    if not np.issubdtype(array.dtype, np.floating) or np.isfinite(array).all():
        return
    bad = int(array.size - np.isfinite(array).sum())
    raise DataError(
        f"sample {sample}: {bad} of {array.size} values for input {description.name!r} are"
        " NaN or infinite",
        fix="remove or repair the sample",
        code="TW-1206",
    )


def _u8_pixels(array: Array) -> bool:
    return array.dtype == np.uint8


def _wrong_shape(array: Array, description: InputDescription, sample: str) -> DataError:
    given, expected = list(array.shape), list(description.shape)
    text = f"sample {sample}: {array.dtype} {given}, and input {description.name!r} takes"
    text += f" {description.dtype} {expected}"
    channels = array.shape[-1] if array.ndim == 3 else None
    if description.is_image and array.dtype == np.uint8 and channels in (1, 2, 4):
        return DataError(
            f"{text}; pictures in arrays have 3 channels, this has {channels}",
            fix="convert the samples to RGB",
            code="TW-1211",
        )
    return DataError(text, fix="give samples of the input's shape", code="TW-1204")


def _wrong_dtype(array: Array, description: InputDescription, sample: str) -> DataError:
    return DataError(
        f"sample {sample}: {array.dtype} {list(array.shape)}, and input {description.name!r} takes"
        f" {description.dtype} {list(description.shape)}",
        fix=f"convert the samples to {description.dtype}",
        code="TW-1205",
    )
