"""Random changes to a batch of training pictures, each drawn per picture."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

PADDING = 4
CUTMIX_SHARE = 0.3


def per_picture(count: int, spread: float) -> Tensor:
    """Factors around one, [count, 1, 1, 1]."""
    return 1.0 + (2.0 * torch.rand(count, 1, 1, 1) - 1.0) * spread


def crop_and_flip(pictures: Tensor) -> Tensor:
    """Move each picture [N, C, S, S] by up to 4 pixels, its border mirrored, and flip one half."""
    count, channels, size, _ = pictures.shape
    padded = functional.pad(pictures, (PADDING,) * 4, mode="reflect")
    steps = torch.arange(size)
    rows = torch.randint(0, 2 * PADDING + 1, (count, 1)) + steps
    columns = torch.randint(0, 2 * PADDING + 1, (count, 1)) + steps
    flipped = torch.rand(count, 1) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    batch = torch.arange(count).view(-1, 1, 1, 1)
    channel = torch.arange(channels).view(1, -1, 1, 1)
    return padded[batch, channel, rows[:, None, :, None], columns[:, None, None, :]]


def jitter(pictures: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of normalised pictures by up to a fifth."""
    count = pictures.shape[0]
    grey = pictures.mean(dim=1, keepdim=True)
    pictures = grey + (pictures - grey) * per_picture(count, 0.3)
    mean = pictures.mean(dim=(1, 2, 3), keepdim=True)
    pictures = mean + (pictures - mean) * per_picture(count, 0.2)
    return pictures + (per_picture(count, 0.2) - 1.0)


def cutmix(pictures: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Paste a rectangle of another picture of the batch, targets [N, classes] mixed by area."""
    size = pictures.shape[-1]
    height, width = (int(torch.randint(size // 4, 3 * size // 4 + 1, ())) for _ in range(2))
    top = int(torch.randint(0, size - height + 1, ()))
    left = int(torch.randint(0, size - width + 1, ()))
    other = torch.randperm(pictures.shape[0])
    mixed = pictures.clone()
    box = (..., slice(top, top + height), slice(left, left + width))
    mixed[box] = pictures[other][box]
    share = height * width / size**2
    return mixed, targets * (1.0 - share) + targets[other] * share


def augment(pictures: Tensor, targets: Tensor, mix: bool) -> tuple[Tensor, Tensor]:
    """Normalised pictures and their targets, changed at random; `mix` allows CutMix."""
    pictures = jitter(crop_and_flip(pictures))
    if mix and float(torch.rand(())) < CUTMIX_SHARE:
        return cutmix(pictures, targets)
    return pictures, targets
