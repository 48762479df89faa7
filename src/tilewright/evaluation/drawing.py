"""Boxes on pictures: from the model's input back to the source, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.config import InputSpec
from tilewright.data import InputDescription
from tilewright.data.preprocess import image_form
from tilewright.evaluation.detection import Detection
from tilewright.files import replacing

COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")


def to_source(
    found: Sequence[Detection], picture: Path, description: InputDescription
) -> list[Detection]:
    """Boxes in pixels of the source picture: the resize rule undone, cut at the edges."""
    from PIL import Image

    with Image.open(picture) as image:
        source = image.size
    form = image_form(description)
    scale, offset = _mapping(source, (form.width, form.height), description.spec)
    placed = []
    for d in found:
        corners = [
            min(max((v - offset[i % 2]) * scale[i % 2], 0.0), float(source[i % 2]))
            for i, v in enumerate(d.box)
        ]
        placed.append(d._replace(box=(corners[0], corners[1], corners[2], corners[3])))
    return placed


def _mapping(
    source: tuple[int, int], target: tuple[int, int], spec: InputSpec
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Source pixel = (input pixel - offset) * scale, per axis x, y."""
    if spec.resize == "stretch":
        return (source[0] / target[0], source[1] / target[1]), (0.0, 0.0)
    if spec.resize == "letterbox":
        ratio = min(target[0] / source[0], target[1] / source[1])
        size = [min(t, max(1, round(s * ratio))) for s, t in zip(source, target, strict=True)]
        offset = ((target[0] - size[0]) // 2, (target[1] - size[1]) // 2)
        return (source[0] / size[0], source[1] / size[1]), (float(offset[0]), float(offset[1]))
    ratio = min(source[0] / target[0], source[1] / target[1]) * spec.crop_share
    corner = [(s - t * ratio) / 2 for s, t in zip(source, target, strict=True)]
    return (ratio, ratio), (-corner[0] / ratio, -corner[1] / ratio)


def draw_boxes(
    picture: Path, found: Sequence[Detection], names: Sequence[str] | None, output: Path
) -> None:
    """Write the picture with its boxes; the format follows the suffix of `output`."""
    from PIL import Image, ImageDraw

    with Image.open(picture) as source:
        image = source.convert("RGB")
    draw = ImageDraw.Draw(image)
    width = max(2, round(min(image.size) / 240))
    for d in found:
        color = COLORS[d.label % len(COLORS)]
        draw.rectangle(d.box, outline=color, width=width)
        text = f"{names[d.label] if names else d.label} {d.score:.2f}"
        box = draw.textbbox((d.box[0], d.box[1]), text, anchor="lb")
        top = max(0.0, box[3] - box[1] - d.box[1])
        draw.rectangle((box[0], box[1] + top, box[2] + 2, box[3] + top), fill=color)
        draw.text((d.box[0] + 1, d.box[1] + top), text, fill="white", anchor="lb")
    with replacing(output) as temporary, temporary.open("wb") as stream:
        suffix = output.suffix.lower() or ".png"
        image.save(stream, format=Image.registered_extensions().get(suffix, "PNG"))
