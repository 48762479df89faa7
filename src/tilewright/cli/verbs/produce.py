"""build, optimize, quantize, compile: the stages, together and one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import console, options

if TYPE_CHECKING:
    from tilewright.api import Build


def build(
    model: options.Model,
    output: options.Output = Path("out"),
    target: options.Target = None,
    npu_mode: options.Modes = None,
    config: options.Config = None,
    calib: options.Calibration = None,
    preprocess: options.Preprocess = None,
    mean: options.Mean = None,
    std: options.Std = None,
    color: options.Color = None,
    resize: options.Resize = None,
    size: options.Size = None,
    layout: options.Layout = None,
    built_in: options.BuiltIn = None,
    input_shapes: options.InputShapes = None,
    start: options.Start = None,
    end: options.End = None,
    samples: options.Samples = None,
    observer: options.Observer = None,
    percentile: options.Percentile = None,
    activations: options.Activations = None,
    weights: options.Weights = None,
    per_channel: options.PerChannel = None,
    power_of_two: options.PowerOfTwo = None,
    bias_correction: options.BiasCorrection = None,
    equalization: options.Equalization = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Take a float ONNX model through every stage to a verified program.

    Writes optimized.onnx, calibration.npz, quantized.onnx, compiled.onnx, report.json, report.html
    and build.toml.
    Flags beat the configuration file. Stages whose inputs have not changed are not run again.

    Example: tilewright build model.onnx -o out --target ax650n --npu-mode NPU1,NPU3
    --calib pictures/ --preprocess imagenet
    """
    from tilewright.api import build as run_build

    with console.progress(quiet=json) as progress:
        result = run_build(
            model,
            output=output,
            config=config,
            progress=progress,
            target=target,
            npu_modes=options.modes(npu_mode),
            input_shapes=options.shapes(input_shapes),
            start=options.tensors(start),
            end=options.tensors(end),
            calibration=calib,
            samples=samples,
            observer=observer,
            percentile=percentile,
            activations=activations,
            weights=weights,
            per_channel=per_channel,
            power_of_two=power_of_two,
            bias_correction=bias_correction,
            equalization=equalization,
            jobs=jobs,
            **options.input_keywords(
                preprocess=preprocess,
                mean=mean,
                std=std,
                color=color,
                resize=resize,
                size=size,
                layout=layout,
                built_in=built_in,
            ),
        )
    if json:
        console.emit(build_object(result))
    else:
        print_build(result)


def build_object(result: Build) -> dict[str, Any]:
    """The stable fields of `build --json`."""
    report = result.report().as_dict()
    for mode in report["modes"].values():
        del mode["layers"]
    kept = (
        "target", "seconds", "peak_mib", "nodes_npu", "nodes_cpu", "modes", "sqnr_db", "warnings",
        "notes", "float_difference", "stages", "artifacts",
    )  # fmt: skip
    return {"compiled": str(result.compiled), **{k: report[k] for k in kept}}


def print_build(result: Build) -> None:
    """What a person wants to know after a build."""
    report = result.report()
    console.warn_all((w.code, f"{w.stage}: {w.text}") for w in report.warnings)
    for node in report.nodes_cpu:
        console.note(f"on the CPU: {node.name} ({node.op}): {node.reason}")
    console.note_all((n["code"], n["text"]) for n in report.notes)
    found = [(error, name) for name, error in report.float_difference.items() if error is not None]
    if found:
        worst, name = max(found)
        console.say(f"optimised: largest relative difference {worst:.2g} (output {name})")
    for name, decibels in report.sqnr_db.items():
        if decibels is not None:
            console.say(f"quantized: output {name} has {decibels:.1f} dB signal to noise")
    rows = [
        (
            name,
            f"{m.max_cycle:,}",
            f"{m.latency_ms:.3f}",
            f"{m.lower_bound_ms:.3f}",
            f"{m.fps:.0f}",
            f"{m.sram_bytes / 2**20:.2f}",
            f"{m.ddr_bytes / 2**20:.1f}",
        )
        for name, m in report.modes.items()
    ]
    if rows:
        console.say("")
        columns = ("mode", "cycles", "ms", "at least", "fps", "SRAM MiB", "DDR MiB")
        console.table(columns, rows, numbers=range(1, 7))
    console.say("")
    spent = sum(report.seconds.values())
    reused = [s.name for s in report.stages if s.reused]
    again = f" (from the build before: {', '.join(reused)})" if reused else ""
    console.say(
        f"{report.nodes_npu} nodes on the NPU, {len(report.nodes_cpu)} on the CPU;"
        f" {spent:.1f} s{again}, {report.peak_mib:.0f} MiB"
    )
    console.say(f"{result.compiled}  {result.folder / 'report.html'}")


def optimize(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="ONNX file to write.")] = Path(
        "optimized.onnx"
    ),
    input_shapes: options.InputShapes = None,
    start: options.Start = None,
    end: options.End = None,
    json: options.Json = False,
) -> None:
    """Bring a model to canonical float form: shapes fixed, constants and BatchNorm folded.

    Example: tilewright optimize model.onnx -o optimized.onnx --input-shapes image:1x3x224x224
    """
    from tilewright.steps import optimize_file

    result = optimize_file(
        model,
        output,
        options.shapes(input_shapes) or {},
        options.tensors(start) or (),
        options.tensors(end) or (),
    )
    if json:
        console.emit(result)
        return
    rows = [(name, n) for name, n in result["passes"].items() if n]
    console.table(("pass", "changes"), rows, numbers=(1,))
    misses = [(miss["rule"], miss["node"], miss["reason"]) for miss in result["near_misses"]]
    if misses:
        console.table(("pass", "left as it is", "because"), misses)
    for name, error in result["float_difference"].items():
        shown = "not finite" if error is None else f"{error:.2g}"
        console.say(f"output {name}: largest relative difference {shown} on a seeded sample")
    console.say(f"wrote {output}")


def quantize(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="QDQ ONNX file to write.")] = Path(
        "quantized.onnx"
    ),
    target: options.Target = None,
    config: options.Config = None,
    calib: options.Calibration = None,
    preprocess: options.Preprocess = None,
    mean: options.Mean = None,
    std: options.Std = None,
    color: options.Color = None,
    resize: options.Resize = None,
    size: options.Size = None,
    layout: options.Layout = None,
    input_shapes: options.InputShapes = None,
    start: options.Start = None,
    end: options.End = None,
    samples: options.Samples = None,
    observer: options.Observer = None,
    percentile: options.Percentile = None,
    activations: options.Activations = None,
    weights: options.Weights = None,
    per_channel: options.PerChannel = None,
    power_of_two: options.PowerOfTwo = None,
    bias_correction: options.BiasCorrection = None,
    equalization: options.Equalization = None,
    json: options.Json = False,
) -> None:
    """Calibrate and quantize a float model to standard QDQ ONNX.

    Example: tilewright quantize optimized.onnx -o quantized.onnx --target ax650n --calib pictures/
    --preprocess imagenet
    """
    from tilewright.steps import quantize_file

    with console.progress(quiet=json) as progress:
        result = quantize_file(
            model,
            output,
            config=config,
            progress=progress,
            target=target,
            input_shapes=options.shapes(input_shapes),
            start=options.tensors(start),
            end=options.tensors(end),
            calib=calib,
            samples=samples,
            observer=observer,
            percentile=percentile,
            activations=activations,
            weights=weights,
            per_channel=per_channel,
            power_of_two=power_of_two,
            bias_correction=bias_correction,
            equalization=equalization,
            **options.input_keywords(
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
        console.emit(result)
        return
    console.warn_all((w["code"], w["text"]) for w in result["warnings"])
    console.say(
        f"{result['samples']} samples in {result['seconds']:.1f} s"
        f" ({result['samples_per_second']:.1f}/s)"
    )
    console.say(f"wrote {output}")


def compile_(
    model: Annotated[Path, typer.Argument(help="QDQ ONNX model.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Compiled file to write.")] = Path(
        "compiled.onnx"
    ),
    target: options.Target = None,
    npu_mode: options.Modes = None,
    config: options.Config = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Compile a quantized model, ours or another tool's, for one target.

    Example: tilewright compile quantized.onnx -o compiled.onnx --target ax650n --npu-mode NPU1,NPU3
    """
    from tilewright.steps import compile_file

    with console.progress(quiet=json) as progress:
        result = compile_file(
            model,
            output,
            config=config,
            progress=progress,
            target=target,
            npu_modes=options.modes(npu_mode),
            jobs=jobs,
        )
    if json:
        console.emit(result)
        return
    for node in result["nodes_cpu"]:
        console.note(f"on the CPU: {node['name']} ({node['op']}): {node['reason']}")
    console.note_all((n["code"], n["text"]) for n in result["notes"])
    rows = [
        (name, f"{m['max_cycle']:,}", f"{m['latency_ms']:.3f}", f"{m['lower_bound_ms']:.3f}")
        for name, m in result["modes"].items()
    ]
    if rows:
        console.table(("mode", "cycles", "ms", "at least"), rows, numbers=(1, 2, 3))
    console.say(f"wrote {output}")
