"""classify, detect: a compiled model on a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, options

Picture = Annotated[Path, typer.Argument(help="Picture file.", show_default=False)]
Executor = Annotated[
    str,
    typer.Option("--by", help="runtime (this CPU), machine (simulated) or reference; same bits."),
]


def classify(
    compiled: options.Compiled,
    picture: Picture,
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="Classes to print.")] = 5,
    labels: Annotated[
        Path | None,
        typer.Option(help="Class names, one a line or a JSON list; default: ImageNet's for 1000."),
    ] = None,
    by: Executor = "runtime",
    npu_mode: options.Mode = None,
    json: options.Json = False,
) -> None:
    """Print the most likely classes of a picture.

    Example: tilewright classify out/compiled.onnx cat.png
    """
    from tilewright.compiled import CompiledModel
    from tilewright.evaluation.labels import class_names
    from tilewright.evaluation.statistics import as_probabilities, top_classes

    model = CompiledModel(compiled)
    outputs = model.execute(model.sample(picture).values, by=by, mode=npu_mode)
    name, scores = next(iter(outputs.items()))
    flat = scores.reshape(-1)
    names = class_names(len(flat), labels)
    probabilities = as_probabilities(flat)
    rows = [
        {
            "class": int(c),
            "name": names[c] if names else "",
            "score": float(flat[c]),
            "probability": float(probabilities[c]),
        }
        for c in top_classes(flat, top)
    ]
    if json:
        console.emit({"output": name, "top": rows})
        return
    console.table(
        ("class", "name", "score", "probability"),
        [(r["class"], r["name"], f"{r['score']:.4f}", f"{r['probability']:.4f}") for r in rows],
        numbers=(0, 2, 3),
    )


def detect(
    compiled: options.Compiled,
    picture: Picture,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture with the boxes drawn.")
    ] = Path("detections.png"),
    form: Annotated[
        str, typer.Option("--format", help="auto, yolox, yolov5, yolov8 or boxes.")
    ] = "auto",
    threshold: Annotated[float, typer.Option(help="Smallest score.")] = 0.5,
    overlap: Annotated[float, typer.Option(help="IoU above which the weaker box goes.")] = 0.45,
    labels: Annotated[
        Path | None, typer.Option(help="Class names, one a line or a JSON list.")
    ] = None,
    by: Executor = "runtime",
    npu_mode: options.Mode = None,
    json: options.Json = False,
) -> None:
    """Find objects in a picture and draw their boxes.

    Example: tilewright detect out/compiled.onnx street.jpg --threshold 0.4 -o boxes.png
    """
    from tilewright.compiled import CompiledModel
    from tilewright.evaluation import detection
    from tilewright.evaluation.drawing import draw_boxes, to_source
    from tilewright.evaluation.labels import class_names

    model = CompiledModel(compiled)
    image = model.picture_input()
    outputs = model.execute(model.sample(picture).values, by=by, mode=npu_mode)
    candidates = detection.decode(outputs, image.size, form)
    found = detection.select(candidates, threshold=threshold, overlap=overlap)
    placed = to_source(found, picture, image.description)
    names = class_names(candidates.scores.shape[1], labels)
    draw_boxes(picture, placed, names, output)
    rows = [
        {
            "class": d.label,
            "name": names[d.label] if names else "",
            "score": d.score,
            "box": [round(v, 2) for v in d.box],
        }
        for d in placed
    ]
    if json:
        console.emit({"detections": rows, "picture": str(output)})
        return
    console.table(
        ("class", "name", "score", "left, top, right, bottom"),
        [(r["class"], r["name"], f"{r['score']:.3f}", r["box"]) for r in rows],
        numbers=(0, 2),
    )
    console.say(f"{len(rows)} boxes; wrote {output}")
