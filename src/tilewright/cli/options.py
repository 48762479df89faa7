"""Options and arguments that several verbs share, and how their texts become values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.errors import ConfigError

Model = Annotated[Path, typer.Argument(help="ONNX model.", show_default=False)]
Compiled = Annotated[
    Path, typer.Argument(help="compiled.onnx, or the folder of a build.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Chip: a name from `targets`, or a .toml file."),
]
Modes = Annotated[
    str | None, typer.Option("--npu-mode", help="NPU modes, as in NPU1,NPU3.", metavar="MODES")
]
Mode = Annotated[
    str | None, typer.Option("--npu-mode", help="NPU mode; default: the first in the file.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where the results go.")]
Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Configuration, .toml or .json (see `init`).")
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calib",
        help="Samples: folder, .tar/.tar.gz/.zip, list .txt, .npy, .npz, .bin or random:N.",
    ),
]
Input = Annotated[
    str | None,
    typer.Option("--input", "-i", help="Picture, .npy, .npz or .bin; default: seeded noise."),
]
InputShapes = Annotated[
    str | None,
    typer.Option(help="Shapes of free inputs, as in image:1x3x224x224.", metavar="NAME:SHAPE,..."),
]
Start = Annotated[
    str | None,
    typer.Option("--start", help="Tensors to begin at, comma-separated.", metavar="TENSORS"),
]
End = Annotated[
    str | None,
    typer.Option("--end", help="Tensors to end at, comma-separated.", metavar="TENSORS"),
]
Preprocess = Annotated[
    str | None, typer.Option(help="Preset: imagenet, tf, lite, yolo or none.", metavar="PRESET")
]
Mean = Annotated[str | None, typer.Option(help="Subtracted, on 0..255: 127 or 123.7,116.3,103.5.")]
Std = Annotated[str | None, typer.Option(help="Divides after the mean: 128 or 58.4,57.1,57.4.")]
Color = Annotated[str | None, typer.Option(help="Channel order of the model: RGB, BGR or GRAY.")]
Resize = Annotated[str | None, typer.Option(help="stretch, crop or letterbox.")]
Size = Annotated[str | None, typer.Option(help="Height and width after resizing, as in 224x224.")]
Layout = Annotated[str | None, typer.Option(help="Axis order of the model: NCHW or NHWC.")]
BuiltIn = Annotated[
    bool | None,
    typer.Option(
        "--built-in/--no-built-in", help="The compiled model takes the u8 picture itself."
    ),
]
Samples = Annotated[int | None, typer.Option(help="At most so many calibration samples.")]
Observer = Annotated[
    str | None, typer.Option(help="auto, minmax, moving_average, percentile, mse or kl.")
]
Percentile = Annotated[float | None, typer.Option(help="Share kept by that observer, in percent.")]
Activations = Annotated[str | None, typer.Option(help="Type of activations: u8, s8 or s16.")]
Weights = Annotated[str | None, typer.Option(help="Type of weights: s8 or u8.")]
PerChannel = Annotated[
    bool | None,
    typer.Option("--per-channel/--per-tensor", help="One weight scale per output channel or one."),
]
PowerOfTwo = Annotated[
    bool | None, typer.Option("--power-of-two/--any-scale", help="Scales are powers of two or any.")
]
BiasCorrection = Annotated[
    bool | None,
    typer.Option("--bias-correction/--no-bias-correction", help="Correct each layer's mean error."),
]
Equalization = Annotated[
    bool | None,
    typer.Option("--equalization/--no-equalization", help="Cross-layer weight equalisation."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Worker processes.")]
Threads = Annotated[int | None, typer.Option(min=1, max=64, help="Threads; default: one per core.")]


def numbers(text: str | None, option: str) -> float | list[float] | None:
    """`127` or `1,2,3`."""
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is not a number or a list of numbers",
            fix=f"write {option} 127 or {option} 123.675,116.28,103.53",
            code="TW-2110",
        ) from None
    return values[0] if len(values) == 1 else values


def extent(text: str | None, option: str) -> list[int] | None:
    """`224` or `224x160`: height and width."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(p.isdigit() for p in parts):
        raise ConfigError(
            f"{option} {text!r} is not a size", fix=f"write {option} 224x224", code="TW-2110"
        )
    values = [int(p) for p in parts]
    return values * 2 if len(values) == 1 else values


def shapes(text: str | None) -> dict[str, list[int]] | None:
    """`a:1x3x224x224,b:1x10`; names may hold colons."""
    if text is None:
        return None
    result: dict[str, list[int]] = {}
    for part in text.split(","):
        name, separator, shape = part.strip().rpartition(":")
        dims = shape.lower().split("x")
        if not separator or not name or not all(d.isdigit() for d in dims):
            raise ConfigError(
                f"--input-shapes {part.strip()!r} is not a name with a shape",
                fix="write --input-shapes image:1x3x224x224",
                code="TW-2110",
            )
        result[name] = [int(d) for d in dims]
    return result


def tensors(text: str | None) -> list[str] | None:
    """`a,b`; a name that holds a comma is given in the configuration file."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def modes(text: str | None) -> list[str] | None:
    """`NPU1,NPU3`."""
    if text is None:
        return None
    return list(dict.fromkeys(m.strip().upper() for m in text.split(",") if m.strip()))


def input_keywords(
    *,
    preprocess: str | None,
    mean: str | None,
    std: str | None,
    color: str | None,
    resize: str | None,
    size: str | None,
    layout: str | None,
    built_in: bool | None,
) -> dict[str, Any]:
    """The preprocessing flags as keywords of the API."""
    return {
        "preprocess": preprocess,
        "mean": numbers(mean, "--mean"),
        "std": numbers(std, "--std"),
        "color": color.upper() if color else None,
        "resize": resize,
        "size": extent(size, "--size"),
        "layout": layout.upper() if layout else None,
        "built_in": built_in,
    }
