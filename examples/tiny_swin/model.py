"""A small Swin transformer for 32x32 pictures, decomposed as the original Swin code is.

Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows" (ICCV 2021):
attention inside windows of 4x4 tokens, every second block with its windows shifted by half a
window, relative position bias, and patch merging between the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

PATCH = 4
"""Pixels of a side of what one token of the first stage covers."""


@dataclass(frozen=True)
class SwinConfig:
    """The sizes of a network; a stage has half the resolution and twice the channels before it."""

    image_size: int = 32
    stem: int = 64
    channels: int = 64
    depths: tuple[int, ...] = (2, 2)
    heads: tuple[int, ...] = (2, 4)
    window: int = 4
    mlp_ratio: int = 4
    classes: int = 10
    drop_path: float = 0.05


def window_partition(x: Tensor, window: int) -> Tensor:
    """Cut tokens [B, H, W, C] into windows [B * windows, window, window, C]."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window, window, channels)


def window_reverse(windows: Tensor, window: int, height: int, width: int) -> Tensor:
    """Join windows [B * windows, window, window, C] into tokens [B, H, W, C]."""
    channels = windows.shape[-1]
    x = windows.view(-1, height // window, width // window, window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, height, width, channels)


def relative_position_index(window: int) -> Tensor:
    """Row of the bias table for every pair of tokens of a window, [window**2, window**2]."""
    steps = torch.arange(window)
    rows, columns = (axis.flatten() for axis in torch.meshgrid(steps, steps, indexing="ij"))
    down = rows[:, None] - rows[None, :] + window - 1
    right = columns[:, None] - columns[None, :] + window - 1
    return down * (2 * window - 1) + right


def shifted_window_mask(height: int, width: int, window: int, shift: int) -> Tensor:
    """Attention mask [windows, window**2, window**2] of a cyclically shifted map.

    A shifted window may hold tokens that were not neighbours before the shift; -100 added to
    their scores keeps them from seeing each other.
    """
    regions = torch.zeros(1, height, width, 1)
    bands = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for row, band in enumerate(bands):
        for column, other in enumerate(bands):
            regions[:, band, other, :] = row * len(bands) + column
    windows = window_partition(regions, window).view(-1, window * window)
    difference = windows.unsqueeze(1) - windows.unsqueeze(2)
    return torch.where(difference == 0, 0.0, -100.0)


class DropPath(nn.Module):
    """Skip a residual branch for a random part of the batch while training."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        keep = 1.0 - self.probability
        mask = torch.empty(x.shape[0], *(1,) * (x.ndim - 1), dtype=x.dtype).bernoulli_(keep)
        return x * mask / keep


class WindowAttention(nn.Module):
    """Multi-head self-attention inside each window, with a relative position bias."""

    relative_position_index: Tensor

    def __init__(self, channels: int, window: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (channels // heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.register_buffer("relative_position_index", relative_position_index(window))
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.softmax = nn.Softmax(dim=-1)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within windows [B * windows, tokens, C]; `mask` is [windows, tokens, tokens]."""
        count, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(count, tokens, 3, self.heads, channels // self.heads)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        bias = bias.view(tokens, tokens, -1).permute(2, 0, 1).contiguous()
        scores = scores + bias.unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(count // windows, windows, self.heads, tokens, tokens)
            scores = scores + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, tokens, tokens)
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(1, 2).reshape(count, tokens, channels))


class Mlp(nn.Module):
    """The feed-forward half of a block."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class SwinBlock(nn.Module):
    """Window attention and an MLP, each on a normalised residual branch."""

    attention_mask: Tensor | None

    def __init__(
        self, config: SwinConfig, size: int, channels: int, heads: int, shift: int, drop: float
    ) -> None:
        super().__init__()
        self.size = size
        self.window = config.window
        self.shift = shift
        self.norm1 = nn.LayerNorm(channels)
        self.attn = WindowAttention(channels, config.window, heads)
        self.drop_path = DropPath(drop)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = Mlp(channels, config.mlp_ratio * channels)
        mask = shifted_window_mask(size, size, config.window, shift) if shift else None
        self.register_buffer("attention_mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens [B, H * W, C]."""
        batch, tokens, channels = x.shape
        shortcut = x
        x = self.norm1(x).view(batch, self.size, self.size, channels)
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        windows = window_partition(x, self.window).view(-1, self.window**2, channels)
        windows = self.attn(windows, self.attention_mask)
        windows = windows.view(-1, self.window, self.window, channels)
        x = window_reverse(windows, self.window, self.size, self.size)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + self.drop_path(x.view(batch, tokens, channels))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Join each 2x2 tokens to one of twice the channels."""

    def __init__(self, size: int, channels: int) -> None:
        super().__init__()
        self.size = size
        self.norm = nn.LayerNorm(4 * channels)
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Reduce tokens [B, H * W, C] to [B, H * W / 4, 2 C]."""
        batch, _, channels = x.shape
        x = x.view(batch, self.size, self.size, channels)
        x0 = x[:, 0::2, 0::2, :]
        x1 = x[:, 1::2, 0::2, :]
        x2 = x[:, 0::2, 1::2, :]
        x3 = x[:, 1::2, 1::2, :]
        x = torch.cat([x0, x1, x2, x3], -1).view(batch, -1, 4 * channels)
        return self.reduction(self.norm(x))


def convolution(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """A normalised 3x3 convolution with ReLU."""
    return [
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


class PatchEmbedding(nn.Module):
    """Turn a picture [B, 3, H, W] into tokens [B, H * W / 16, C].

    A few 3x3 convolutions instead of one of 4x4 with stride 4: with few pictures and few epochs
    they learn much faster (Xiao et al., "Early Convolutions Help Transformers See Better", 2021).
    """

    def __init__(self, stem: int, channels: int) -> None:
        super().__init__()
        self.proj = nn.Sequential(
            *convolution(3, stem, stride=2),
            *convolution(stem, stem, stride=1),
            *convolution(stem, stem, stride=1),
            *convolution(stem, 2 * stem, stride=2),
            nn.Conv2d(2 * stem, channels, 3, padding=1),
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.proj(x).flatten(2).transpose(1, 2))


def stage(
    config: SwinConfig, size: int, channels: int, heads: int, drops: Sequence[float]
) -> list[nn.Module]:
    """The blocks of one stage; windows are shifted in every second block if there are several."""
    half = config.window // 2 if size > config.window else 0
    return [
        SwinBlock(config, size, channels, heads, half if block % 2 else 0, drop)
        for block, drop in enumerate(drops)
    ]


class TinySwin(nn.Module):
    """Normalised pictures [B, 3, 32, 32] to class scores [B, classes]."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config.stem, config.channels)
        drops = torch.linspace(0.0, config.drop_path, sum(config.depths)).tolist()
        size = config.image_size // PATCH
        channels = config.channels
        layers: list[nn.Module] = []
        for index, heads in enumerate(config.heads):
            if index:
                layers.append(PatchMerging(size, channels))
                size, channels = size // 2, channels * 2
            first = sum(config.depths[:index])
            layers += stage(
                config, size, channels, heads, drops[first : first + config.depths[index]]
            )
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, config.classes)
        self.apply(initialise)

    def forward(self, image: Tensor) -> Tensor:
        x = self.layers(self.patch_embed(image))
        return self.head(self.norm(x).mean(dim=1))


def initialise(module: nn.Module) -> None:
    """Set a layer's first weights, as the original code does for its linear layers."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
        nn.init.zeros_(module.bias)
