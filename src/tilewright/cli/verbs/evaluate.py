"""evaluate: float, quantized and compiled side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import console, options


def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="ONNX files or build folders; a folder stands for its float, quantized and"
            " compiled models.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Samples, as for --calib.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="CSV: sample name, class number; or one number a line.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="top1, agreement, sqnr or detections (the first model is right).")
    ] = "agreement",
    samples: Annotated[int | None, typer.Option(min=1, help="At most so many samples.")] = None,
    form: Annotated[str, typer.Option("--format", help="Detector format, as for detect.")] = "auto",
    threshold: Annotated[float, typer.Option(help="detections: smallest score.")] = 0.5,
    preprocess: options.Preprocess = None,
    mean: options.Mean = None,
    std: options.Std = None,
    color: options.Color = None,
    resize: options.Resize = None,
    size: options.Size = None,
    layout: options.Layout = None,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Score models on data, each against the first, with 95 % intervals.

    Preprocessing is that of the compiled model or the build folder, unless flags say otherwise.

    Example: tilewright evaluate out --data pictures/ --labels labels.csv --metric top1
    """
    from tilewright.comparison import evaluate_models

    with console.progress(quiet=json) as progress:
        rows = evaluate_models(
            models,
            data=data,
            labels=labels,
            metric=metric,
            limit=samples,
            form=form,
            threshold=threshold,
            threads=threads,
            progress=progress,
            preprocessing=options.input_keywords(
                preprocess=preprocess,
                mean=mean,
                std=std,
                color=color,
                resize=resize,
                size=size,
                layout=layout,
                built_in=None,
            ),
        )
    if json:
        console.emit({"metric": metric, "models": rows})
        return
    columns = [k for k in rows[0] if any(r.get(k) is not None for r in rows)]
    console.table(
        columns,
        [tuple(_cell(row.get(k)) for k in columns) for row in rows],
        numbers=range(1, len(columns)),
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return f"{value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
