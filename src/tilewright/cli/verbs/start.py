"""info, init, doctor: before the first build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, options


def info(
    model: Annotated[
        Path, typer.Argument(help="ONNX model, plain, quantized or compiled.", show_default=False)
    ],
    target: options.Target = None,
    input_shapes: options.InputShapes = None,
    json: options.Json = False,
) -> None:
    """Show inputs, opset, free dimensions and what each target supports.

    Example: tilewright info model.onnx --target ax650n
    """
    from tilewright.inspection import describe

    found = describe(model, target=target, input_shapes=options.shapes(input_shapes))
    if json:
        console.emit(found.as_dict())
        return
    console.say(f"{found.model}: {found.kind}, opset {found.opset}, {found.nodes} nodes")
    rows = [("input", p["name"], p["shape"], p["dtype"], p["note"]) for p in found.inputs]
    rows += [("output", p["name"], p["shape"], p["dtype"], p["note"]) for p in found.outputs]
    console.table(("", "name", "shape", "type", ""), rows)
    if found.operators:
        console.say("")
        console.table(("operator", "nodes"), list(found.operators.items()), numbers=(1,))
    for name, support in found.targets.items():
        console.say("")
        console.say(
            f"{name}: {support['nodes_npu']} nodes on the NPU, "
            f"{len(support['nodes_cpu'])} on the CPU"
        )
        cpu = [(n["name"], n["op"], n["reason"]) for n in support["nodes_cpu"]]
        if cpu:
            console.table(("CPU node", "operator", "reason"), cpu)
    for line in found.notes:
        console.note(line)


def init(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Configuration to write.")] = Path(
        "tilewright.toml"
    ),
    target: Annotated[str, typer.Option("--target", "-t", help="Chip.")] = "ax650n",
    calib: options.Calibration = None,
    preprocess: options.Preprocess = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json: options.Json = False,
) -> None:
    """Write a commented configuration to start from.

    Example: tilewright init model.onnx --target a311d --preprocess imagenet
    """
    from tilewright.config import preset
    from tilewright.config_template import commented_template
    from tilewright.errors import ConfigError
    from tilewright.files import replacing
    from tilewright.inspection import input_shapes_of
    from tilewright.targets import load_target

    load_target(target)
    if preprocess is not None:
        preset(preprocess)
    shapes = input_shapes_of(model)
    if output.exists() and not force:
        raise ConfigError(
            f"{output} is there already", fix="choose another -o, or add --force", code="TW-2111"
        )
    text = commented_template(
        target, shapes, model=model.name, calibration=calib, preset=preprocess
    )
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if json:
        console.emit({"config": str(output), "inputs": {k: list(v) for k, v in shapes.items()}})
    else:
        data = "" if calib else " --calib PICTURES"
        console.say(
            f"wrote {output}; next: tilewright build {model} -o out --config {output}{data}"
        )


def doctor(json: options.Json = False) -> None:
    """Check the environment: versions, the C runtime, caches, disk, optional tools.

    Example: tilewright doctor
    """
    from tilewright.environment import examine

    checks = examine()
    failed = [c for c in checks if c.state == "fail"]
    if json:
        console.emit({"ok": not failed, "checks": [c._asdict() for c in checks]})
    else:
        console.table(("", "what", "found"), [(c.state, c.name, c.detail) for c in checks])
    if failed:
        raise typer.Exit(1)
