"""Rendered text: lines, pages and letters on photographs, seeded, with Pillow's own font."""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from tilewright.assets.cache import asset_path

LETTERS = "ABCDEFGHKLMNPRSTUVWXYZ"
CHARACTERS = "23456789abcdefghkmnpqrstuvwxyz"
PAGE_COLOUR, INK = (228, 226, 220), (40, 40, 60)


class Box(NamedTuple):
    """Pixels: left, top, right, bottom."""

    left: float
    top: float
    right: float
    bottom: float


@cache
def phrases() -> tuple[str, ...]:
    """Short texts: the names of the ImageNet classes."""
    return tuple(json.loads(asset_path("imagenet-names").read_text(encoding="utf-8")))


def _phrase(rng: np.random.Generator) -> str:
    return phrases()[int(rng.integers(0, len(phrases())))]


def line(rng: np.random.Generator, *, worn: bool) -> Image.Image:
    """A short text as `written`."""
    return written(_phrase(rng), rng, worn=worn)


def written(text: str, rng: np.random.Generator, *, worn: bool) -> Image.Image:
    """A line of dark text, 48 pixels high; a worn one is blurred, noisy and a little turned."""
    font = ImageFont.load_default(size=30)
    left, top, right, bottom = font.getbbox(text)
    picture = Image.new("L", (int(right - left) + 24, 48), 235)
    ImageDraw.Draw(picture).text((12 - left, (48 - bottom - top) // 2), text, 30, font)
    if worn:
        angle = rng.uniform(-1.5, 1.5)
        picture = picture.rotate(angle, Image.Resampling.BICUBIC, fillcolor=235)
        picture = picture.filter(ImageFilter.GaussianBlur(1.3))
        pixels = np.asarray(picture, np.float32) * rng.uniform(0.6, 1)
        pixels = pixels + rng.normal(0, 20, pixels.shape)
        picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return picture.convert("RGB")


def word(rng: np.random.Generator) -> Image.Image:
    """Four characters at different heights, grey on grey, 130x56 pixels."""
    font = ImageFont.load_default(size=34)
    picture = Image.new("L", (130, 56), 245)
    draw = ImageDraw.Draw(picture)
    for index in range(4):
        character = CHARACTERS[int(rng.integers(0, len(CHARACTERS)))]
        draw.text((10 + 28 * index, 6 + int(rng.integers(0, 8))), character, 60, font)
    return picture


def page(rng: np.random.Generator, size: int) -> Image.Image:
    """A square page with lines of different heights."""
    picture = Image.new("RGB", (size, size), PAGE_COLOUR)
    draw = ImageDraw.Draw(picture)
    top = size // 20
    while True:
        font = ImageFont.load_default(size=int(rng.integers(18, 40)))
        at = (int(rng.integers(size // 32, size // 4)), top)
        text = _phrase(rng)
        bottom = draw.textbbox(at, text, font)[3]
        if bottom > size - size // 32:
            return picture
        draw.text(at, text, INK, font)
        top = int(bottom) + int(rng.integers(14, 40))


def letters(scene: Image.Image, rng: np.random.Generator) -> tuple[Image.Image, list[Box]]:
    """Four outlined letters on a 416x416 picture, and where they stand."""
    picture = scene.copy()
    draw = ImageDraw.Draw(picture)
    boxes = []
    for column in range(4):
        font = ImageFont.load_default(size=int(rng.integers(40, 64)))
        at = (20 + 98 * column + int(rng.integers(0, 24)), int(rng.integers(20, 330)))
        letter = LETTERS[int(rng.integers(0, len(LETTERS)))]
        draw.text(at, letter, (255, 255, 255), font, stroke_width=2, stroke_fill=(20, 20, 20))
        boxes.append(Box(*draw.textbbox(at, letter, font, stroke_width=2)))
    return picture, boxes
