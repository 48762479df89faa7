"""simulate, run: execute a compiled model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, options

OutputFolder = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Folder for output arrays; default: outputs/ beside the model."
    ),
]


def simulate(
    compiled: options.Compiled,
    input: options.Input = None,
    npu_mode: options.Mode = None,
    trace: Annotated[Path | None, typer.Option(help="Perfetto trace to write (.json).")] = None,
    output: OutputFolder = None,
    json: options.Json = False,
) -> None:
    """Run the program on the simulated machine: outputs, cycles, latency.

    Example: tilewright simulate out/compiled.onnx --input cat.png --trace trace.json
    """
    from tilewright.compiled import CompiledModel

    model = CompiledModel(compiled)
    mode = model.mode(npu_mode)
    result = model.simulate(model.sample(input).values, mode, trace=trace)
    folder = output or model.path.parent / "outputs" / "simulate"
    paths = model.write_outputs(result.outputs, folder)
    timing = result.timing
    if json:
        console.emit(
            {
                "outputs": {name: str(path) for name, path in paths.items()},
                "mode": mode,
                "max_cycle": timing.max_cycle,
                "lower_bound_cycle": timing.lower_bound_cycle,
                "latency_ms": dict.fromkeys(("min", "max", "avg"), timing.latency_ms),
                "fps": timing.fps,
                "trace": str(trace) if trace else None,
            }
        )
        return
    for name, path in paths.items():
        console.say(f"{name}: {path}")
    console.say(f"max_cycle = {timing.max_cycle:,} ({model.target.name}, {mode})")
    console.say(
        f"latency {timing.latency_ms:.3f} ms, at least {timing.lower_bound_ms:.3f} ms,"
        f" {timing.fps:.0f} frames per second"
    )
    if trace:
        console.say(f"trace: {trace} (open in ui.perfetto.dev)")


def run(
    compiled: options.Compiled,
    input: options.Input = None,
    repeat: Annotated[int, typer.Option("--repeat", "-r", min=1, help="Timed runs.")] = 1,
    warmup: Annotated[int, typer.Option("--warmup", "-w", min=0, help="Runs before them.")] = 0,
    threads: options.Threads = None,
    output: OutputFolder = None,
    json: options.Json = False,
) -> None:
    """Run the model on this CPU with the C runtime, and time it.

    Example: tilewright run out/compiled.onnx --input cat.png -r 100 -w 10 --threads 2
    """
    from tilewright.compiled import CompiledModel

    model = CompiledModel(compiled)
    result = model.run(model.sample(input).values, repeat=repeat, warmup=warmup, threads=threads)
    folder = output or model.path.parent / "outputs" / "run"
    paths = model.write_outputs(result.outputs, folder)
    low, high, mean = result.milliseconds
    if json:
        console.emit(
            {
                "outputs": {name: str(path) for name, path in paths.items()},
                "latency_ms": {"min": low, "max": high, "avg": mean},
                "fps": 1000 / mean,
                "threads": result.threads,
            }
        )
        return
    for name, path in paths.items():
        console.say(f"{name}: {path}")
    console.say(
        f"min = {low:.3f} ms, max = {high:.3f} ms, avg = {mean:.3f} ms"
        f" ({repeat} runs, {warmup} before, {result.threads} threads)"
    )
