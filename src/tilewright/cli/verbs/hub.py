"""hf-export: a classifier by name to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, options


def hf_export(
    name: Annotated[
        str, typer.Argument(help="Name on the model hub, or a folder.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="ONNX file to write; default: the name's last part."),
    ] = None,
    opset: Annotated[int, typer.Option(min=18, help="ONNX opset of the export.")] = 18,
    picture: Annotated[
        Path | None, typer.Option("--picture", "-p", help="Picture to classify.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Export an image classifier of the transformers library to ONNX (extra `hub`).

    Simplifies and checks it, compares it with torch, classifies a picture, and writes a
    configuration with the classifier's own preprocessing beside it.

    Example: tilewright hf-export microsoft/swin-tiny-patch4-window7-224 -o swin-t.onnx -p cat.jpg
    """
    from tilewright.files import replacing
    from tilewright.hub import export_classifier
    from tilewright.toml_writer import toml_text

    path = output or Path(f"{Path(name).name}.onnx")
    found = export_classifier(name, path, opset=opset, picture=picture)
    settings = path.with_suffix(".toml")
    with replacing(settings) as temporary:
        temporary.write_text(toml_text({"input": dict(found.preprocessing)}), "utf-8")
    if json:
        predicted = None
        if found.predicted is not None:
            predicted = dict(zip(("class", "name", "probability"), found.predicted, strict=True))
        console.emit(
            {
                "onnx": str(path),
                "config": str(settings),
                "shape": list(found.shape),
                "difference": found.difference,
                "predicted": predicted,
            }
        )
        return
    console.say(f"largest difference from torch: {found.difference:.2g}")
    if found.predicted is not None:
        number, label, share = found.predicted
        console.say(f"predicted class {number}, {label} ({share:.1%})")
    console.say(f"wrote {path} and {settings}")
    console.say(f"next: tilewright build {path} -c {settings} -t ax650n --calib PICTURES -o out")
