"""From a picture to a model input: the one implementation, used wherever samples are fed.

Two steps, both deterministic: geometry (u8 picture -> u8 picture of the model's size, resampled by
Pillow) and normalisation.  Normalisation of a picture is a table with 256 entries per channel, so
that a model with built-in preprocessing, the C runtime and the host agree by definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilewright.config import InputSpec, PerChannel, per_channel
from tilewright.errors import DataError

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class InputDescription:
    """One model input: static shape, element type and how samples become it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: InputSpec

    @property
    def is_image(self) -> bool:
        """Whether pictures can feed it: four dimensions with 1 or 3 channels, unless declared."""
        if self.spec.kind != "auto":
            return self.spec.kind == "image"
        return len(self.shape) == 4 and image_layout(self.spec, self.shape) is not None

    @property
    def takes_pictures(self) -> bool:
        """Whether the compiled model is fed u8 pictures and normalises them itself."""
        return self.spec.built_in and self.is_image


@dataclass(frozen=True)
class ImageForm:
    """Size and channel order of an image input, every default resolved."""

    layout: Literal["NCHW", "NHWC"]
    color: Literal["RGB", "BGR", "GRAY"]
    height: int
    width: int

    @property
    def channels(self) -> int:
        return 1 if self.color == "GRAY" else 3


def image_layout(spec: InputSpec, shape: tuple[int, ...]) -> Literal["NCHW", "NHWC"] | None:
    """The declared layout, else the one whose channel axis has 1 or 3 entries; None if neither."""
    if spec.layout is not None:
        return spec.layout
    if len(shape) != 4:
        return None
    if shape[1] in (1, 3):
        return "NCHW"
    return "NHWC" if shape[3] in (1, 3) else None


def image_form(description: InputDescription) -> ImageForm:
    """Resolve layout, colour and size of an image input.

    Raises:
        DataError: the shape is not that of pictures, or contradicts the declared colour.
    """
    name, shape, spec = description.name, description.shape, description.spec
    layout = image_layout(spec, shape)
    if len(shape) != 4 or layout is None:
        raise DataError(
            f"input {name!r} has shape {list(shape)}, which pictures cannot fill",
            fix="give .npy, .npz or .bin samples",
            code="TW-1210",
        )
    channels = shape[1] if layout == "NCHW" else shape[3]
    height, width = (shape[2], shape[3]) if layout == "NCHW" else (shape[1], shape[2])
    color = spec.color or ("GRAY" if channels == 1 else "RGB")
    form = ImageForm(layout, color, height, width)
    if form.channels != channels:
        raise DataError(
            f"input {name!r} has {channels} channels, and {color} pictures have {form.channels}",
            fix="correct color or layout of the input's preprocessing",
            code="TW-1211",
        )
    if spec.size is not None and spec.size != (height, width):
        raise DataError(
            f"input {name!r} is {height}x{width}, and its preprocessing says size"
            f" {spec.size[0]}x{spec.size[1]}",
            fix="remove size or set the model's input shape",
            code="TW-1211",
        )
    for key, value in (("mean", spec.mean), ("std", spec.std)):
        if len(per_channel(value)) not in (1, channels):
            raise DataError(
                f"input {name!r} has {channels} channels, and {key} has {len(per_channel(value))}",
                fix=f"give {key} one number or one per channel",
                code="TW-1211",
            )
    return form


def picture_form(description: InputDescription) -> ImageForm:
    """The form of an input that one picture fills.

    Raises:
        DataError: as `image_form`, or the input is a batch.
    """
    form = image_form(description)
    if description.shape[0] != 1:
        raise DataError(
            f"input {description.name!r} has batch {description.shape[0]}, and a picture fills a"
            " batch of 1",
            fix="give arrays of whole batches, or set batch 1 with --input-shapes",
            code="TW-1210",
        )
    return form


def fit_picture(image: U8, spec: InputSpec, form: ImageForm) -> U8:
    """Geometry and greyscale: u8 RGB [h, w, 3] -> u8 [H, W, 3] RGB, or [H, W, 1] for GRAY."""
    from PIL import Image

    picture = Image.fromarray(image)
    if form.color == "GRAY":
        picture = picture.convert("L")
    filter_ = {
        "bicubic": Image.Resampling.BICUBIC,
        "bilinear": Image.Resampling.BILINEAR,
    }[spec.interpolation]
    size = (form.width, form.height)
    if spec.resize == "letterbox":
        fitted = _letterbox(picture, size, spec.pad_value, filter_)
    else:
        share = spec.crop_share if spec.resize == "crop" else None
        fitted = picture.resize(size, filter_, _source_box(picture.size, size, share))
    return np.asarray(fitted).reshape(form.height, form.width, form.channels)


def _source_box(
    source: tuple[int, int], target: tuple[int, int], share: float | None
) -> tuple[float, float, float, float]:
    """The part of the source that is resized: everything, or the centred box of the target's shape.

    The box is the largest of the target's aspect ratio, times `share`.
    """
    width, height = source
    if share is None:
        return 0, 0, width, height
    aspect = target[1] / target[0]
    if width * aspect <= height:
        box_width = width * share
        box_height = box_width * aspect
    else:
        box_height = height * share
        box_width = box_height / aspect
    x, y = (width - box_width) / 2, (height - box_height) / 2
    return x, y, x + box_width, y + box_height


def _letterbox(picture: Any, size: tuple[int, int], pad_value: int, filter_: Any) -> Any:
    from PIL import Image

    ratio = min(size[0] / picture.width, size[1] / picture.height)
    width = min(size[0], max(1, round(picture.width * ratio)))
    height = min(size[1], max(1, round(picture.height * ratio)))
    color = pad_value if picture.mode == "L" else (pad_value,) * 3
    canvas = Image.new(picture.mode, size, color)
    corner = ((size[0] - width) // 2, (size[1] - height) // 2)
    canvas.paste(picture.resize((width, height), filter_), corner)
    return canvas


def pixels_to_table(spec: InputSpec, channels: int = 3) -> F32:
    """float32 [256, channels]: entry v of channel c is the normalised value of pixel value v.

    Channels are in the model's order.  Computed in float64 and rounded once.
    """
    pixel = np.arange(256, dtype=np.float64)[:, None]
    return normalise(np.broadcast_to(pixel, (256, channels)), spec, axis=1).astype(np.float32)


def normalise(x: Array, spec: InputSpec, axis: int) -> npt.NDArray[np.float64]:
    """`(x - mean) / std` in float64; `axis` is the channel axis."""
    shape = [1] * x.ndim
    shape[axis] = -1

    def spread(value: PerChannel) -> npt.NDArray[np.float64]:
        return np.array(per_channel(value), dtype=np.float64).reshape(shape)

    result: npt.NDArray[np.float64] = (x.astype(np.float64) - spread(spec.mean)) / spread(spec.std)
    return result


def normalise_picture(pixels: U8, description: InputDescription) -> Array:
    """A fitted picture -> the model input of the description's shape and dtype."""
    form = image_form(description)
    if form.color == "BGR":
        pixels = pixels[:, :, ::-1]
    table = pixels_to_table(description.spec, form.channels)
    x = np.empty(description.shape[1:], np.float32)
    planes = x if form.layout == "NCHW" else x.transpose(2, 0, 1)
    for channel, plane in enumerate(planes):
        # Any mode but the default one: that copies, and no pixel is outside of the table.
        np.take(table[:, channel], pixels[..., channel], out=plane, mode="clip")
    return to_dtype(x[None], description)


def to_dtype(x: Array, description: InputDescription) -> Array:
    """Cast to the input's type; an integer type takes the rounded value if it fits."""
    dtype = description.dtype
    if not np.issubdtype(dtype, np.integer):
        return x.astype(dtype, copy=False)
    rounded = np.rint(x)
    limits = np.iinfo(dtype)
    if rounded.size and (rounded.min() < limits.min or rounded.max() > limits.max):
        raise DataError(
            f"input {description.name!r} is {dtype}, and preprocessing gives values"
            f" {rounded.min():g}..{rounded.max():g}",
            fix="set mean 0 and std 1 for an integer input",
            code="TW-1212",
        )
    return rounded.astype(dtype)


def preprocess(image: U8, spec: InputSpec, shape: tuple[int, ...], dtype: Any) -> Array:
    """A u8 RGB picture [h, w, 3] -> the array that the model takes, of `shape` and `dtype`.

    Raises:
        DataError: the spec does not fit the shape.
    """
    description = InputDescription("input", tuple(shape), np.dtype(dtype), spec)
    form = picture_form(description)
    return normalise_picture(fit_picture(image, spec, form), description)


def explain(description: InputDescription) -> str:
    """What happens to a picture on its way into the model, line by line, with the value ranges."""
    spec, form = description.spec, image_form(description)
    names = {"RGB": "RGB", "BGR": "BGR", "GRAY": "Y"}[form.color]
    size = f"{form.width}x{form.height}"
    how = {
        "stretch": f"the whole picture is stretched to {size}",
        "crop": f"the central {spec.crop_share:.4g} of the shorter side is resized to {size}",
        "letterbox": f"fitted into {size}, the border filled with {spec.pad_value}",
    }[spec.resize]
    lines = [f"{description.name}: {form.color}, {form.layout}; {how} ({spec.interpolation})"]
    table = pixels_to_table(spec, form.channels)
    mean, std = (_per_channel_list(v, form.channels) for v in (spec.mean, spec.std))
    for c, name in enumerate(names):
        lines.append(
            f"  {name}: (x - {mean[c]:g}) / {std[c]:g}; 0..255 becomes"
            f" {table[0, c]:.4g}..{table[255, c]:.4g}"
        )
    return "\n".join(lines)


def _per_channel_list(value: PerChannel, channels: int) -> list[float]:
    values = per_channel(value)
    return list(values) * channels if len(values) == 1 else list(values)
