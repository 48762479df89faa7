"""Writes exports.zip: small modules as today's exporters and simplifiers spell them.

Run with torch, onnxscript, onnxslim and onnxsim installed:

    python tests/importer/make_exports.py tests/importer/exports.zip

Each member is <module>.<exporter>.onnx.  Weights are multiples of 1/8: the file stays small.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxsim
import onnxslim
import torch
from torch import nn
from torch.nn import functional

TOKENS, IMAGE = (2, 6, 16), (2, 8, 6, 6)


class Of(nn.Module):
    """A function of the input and of some modules."""

    def __init__(self, function: Callable[..., torch.Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.parts)


class LayerNorm2d(nn.Module):
    """ConvNeXt's, over the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class LlamaNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    """timm's, with the scores written out, by the fused function, or by einsum."""

    def __init__(self, channels: int, heads: int, spelling: str) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.heads, self.spelling = heads, spelling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, channels = x.shape
        size = channels // self.heads
        qkv = self.qkv(x).reshape(batch, count, 3, self.heads, size)
        if self.spelling == "einsum":
            q, k, v = qkv.unbind(2)
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * size**-0.5
            y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
            return self.proj(y.reshape(batch, count, channels))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.spelling == "fused":
            y = functional.scaled_dot_product_attention(q, k, v)
        else:
            y = ((q * size**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, count, channels))


class SwinBlock(nn.Module):
    """A block of windows, cyclically shifted, with the mask that the shift needs."""

    def __init__(self, channels: int, heads: int, side: int, window: int, shift: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels)
        )
        self.heads, self.side, self.window, self.shift = heads, side, window, shift
        places = window * window
        self.bias = nn.Parameter(torch.zeros(heads, places, places))
        regions = torch.zeros(side, side)
        if shift:
            regions[-window:] += 1
            regions[:, -window:] += 2
        regions = self.windows(regions.reshape(1, side, side, 1)).squeeze(-1)
        mask = (regions.unsqueeze(1) != regions.unsqueeze(2)).float() * -100.0
        self.register_buffer("mask", mask.unsqueeze(1))

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, channels = x.shape[0], self.side // self.window, x.shape[3]
        x = x.view(batch, count, self.window, count, self.window, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, channels = x.shape
        y = self.norm1(x).view(batch, self.side, self.side, channels)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.windows(y)
        q, k, v = (
            part.reshape(-1, self.window**2, self.heads, channels // self.heads).transpose(1, 2)
            for part in self.qkv(y).chunk(3, -1)
        )
        scores = q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5 + self.bias
        if self.shift:
            scores = scores + self.mask
        y = self.proj(
            (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, self.window**2, channels)
        )
        count = self.side // self.window
        y = y.view(batch, count, count, self.window, self.window, channels)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(batch, self.side, self.side, channels)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y.reshape(batch, places, channels)
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """Patches, two blocks, a patch merging, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)
        self.blocks = nn.Sequential(SwinBlock(8, 2, 8, 4, 0), SwinBlock(8, 2, 8, 4, 2))
        self.merged, self.reduction = nn.LayerNorm(32), nn.Linear(32, 16, bias=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.patches(x).flatten(2).transpose(1, 2))
        x = self.blocks(x).view(-1, 8, 8, 8)
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x = self.reduction(self.merged(torch.cat(parts, -1).flatten(1, 2)))
        return self.head(x.mean(1))


def normalized(x: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(x, -1, correction=1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def multihead() -> nn.Module:
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    return Of(lambda x, m: m(x, x, x, need_weights=False)[0], attention)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer_norm": (lambda: nn.LayerNorm(16), TOKENS),
    "layer_norm_2d": (lambda: LayerNorm2d(8), IMAGE),
    "variance_with_correction": (lambda: Of(normalized), TOKENS),
    "rms_norm": (lambda: LlamaNorm(16), TOKENS),
    "group_norm": (lambda: Of(lambda x, m: m(x), nn.GroupNorm(4, 8)), IMAGE),
    "normalize": (lambda: Of(lambda x: functional.normalize(x, dim=-1)), TOKENS),
    "gelu": (nn.GELU, TOKENS),
    "gelu_tanh": (lambda: nn.GELU("tanh"), TOKENS),
    "quick_gelu": (
        lambda: Of(lambda x, m: m(x) * torch.sigmoid(1.702 * m(x)), nn.Linear(16, 16)),
        TOKENS,
    ),
    "mish": (nn.Mish, TOKENS),
    "softplus": (nn.Softplus, TOKENS),
    "hard_swish": (nn.Hardswish, TOKENS),
    "log_softmax": (lambda: nn.LogSoftmax(-1), TOKENS),
    "batch_norm_of_tokens": (
        lambda: Of(
            lambda x, linear, norm: norm(linear(x).flatten(0, 1)).reshape(2, 6, 12),
            nn.Linear(16, 12, bias=False),
            nn.BatchNorm1d(12),
        ),
        TOKENS,
    ),
    "attention": (lambda: Attention(16, 4, "written out"), TOKENS),
    "fused_attention": (lambda: Attention(16, 4, "fused"), TOKENS),
    "einsum_attention": (lambda: Attention(16, 4, "einsum"), TOKENS),
    "multihead_attention": (multihead, TOKENS),
    "unfold": (lambda: Of(lambda x: functional.unfold(x, 2, stride=2)), IMAGE),
    "roll": (lambda: Of(lambda x: torch.roll(x, (-2, 1), (2, 3))), IMAGE),
    "swin": (Swin, (1, 3, 16, 16)),
}

EXPORTERS: dict[str, dict[str, Any]] = {
    "script-14": {"dynamo": False, "opset_version": 14, "do_constant_folding": False},
    "script-17": {"dynamo": False, "opset_version": 17},
    "dynamo-18": {"dynamo": True, "opset_version": 18, "optimize": False},
    "dynamo-23": {"dynamo": True, "opset_version": 23},
}


def coarse(module: nn.Module) -> nn.Module:
    """Weights of few bits; one-dimensional ones and variances away from zero."""
    for tensor in (*module.parameters(), *module.buffers()):
        if not tensor.is_floating_point() or bool((tensor < -50).any()):
            continue
        drawn = torch.randn_like(tensor) * (0.5 if tensor.ndim > 1 else 0.25)
        drawn = torch.round(8 * (drawn if tensor.ndim > 1 else drawn.abs() + 0.5)) / 8
        tensor.data.copy_(drawn)
    return module.eval()


def main(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (make, shape) in MODULES.items():
            torch.manual_seed(0)
            module, sample = coarse(make()), torch.randn(shape)
            for exporter, settings in EXPORTERS.items():
                stream = io.BytesIO()
                program = torch.onnx.export(
                    module,
                    (sample,),
                    None if settings["dynamo"] else stream,
                    input_names=["x"],
                    output_names=["y"],
                    verbose=False,
                    **settings,
                )
                text = stream.getvalue()
                model = onnx.load_from_string(text) if text else program.model_proto
                write(archive, f"{name}.{exporter}", model)
                if exporter == "script-17":
                    write(archive, f"{name}.{exporter}-slim", onnxslim.slim(model))
                    write(archive, f"{name}.{exporter}-sim", onnxsim.simplify(model)[0])


def write(archive: zipfile.ZipFile, name: str, model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in model.graph.value_info:
        del value.metadata_props[:]
    member = zipfile.ZipInfo(f"{name}.onnx", date_time=(1980, 1, 1, 0, 0, 0))
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
