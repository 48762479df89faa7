"""The last stage of a build: run what was compiled, compare it with float, and take its time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.compiled import CompiledModel, Fed, SampleFeeds, Simulation
from tilewright.errors import TilewrightError
from tilewright.evaluation.statistics import NoiseRatio
from tilewright.report.content import Layer, Mode
from tilewright.stages import float_runner

if TYPE_CHECKING:
    from tilewright.data import SampleSet
    from tilewright.execution import Values
    from tilewright.graph import Graph
    from tilewright.machine.timing import Timeline
    from tilewright.program import Program

SQNR_SAMPLES = 8

Progress = Callable[[str, int, int], None]


def measure_stage(
    compiled: Path, optimized: Path, samples: SampleSet | None, progress: Progress
) -> dict[str, Any]:
    """Load the compiled model and run it: what does not load or disagrees is never shipped.

    Args:
        samples: of the calibration; None: seeded noise, and no figures of accuracy.

    Raises:
        TilewrightError: the machine and the C runtime give different bits, which is our bug.
    """
    model = CompiledModel(compiled)
    feeds = list(_some(model, samples))
    execution = model.execution("runtime")
    first = execution.run(feeds[0].values)
    with ThreadPoolExecutor(1) as beside:
        # The machine keeps one processor busy, and onnxruntime has no need of Python's lock.
        judged = samples is not None and not samples.meaningless
        exact = beside.submit(_exact, optimized, feeds) if judged else None
        modes = {}
        for index, mode in enumerate(model.modes):
            progress("simulate", index, len(model.modes))
            simulated = model.simulate(feeds[0].values, mode, given=first)
            require_same_bits(first, simulated.values, f"the machine in mode {mode}")
            modes[mode] = mode_figures(model, mode, simulated)
        found: dict[str, Any] = {"modes": modes, "sqnr_db": {}, "warnings": []}
        if exact is None:
            return found
        ours = [model.outputs_of(first)]
        for index, fed in enumerate(feeds[1:], 1):
            progress("compare", index, len(feeds))
            ours.append(model.outputs_of(execution.run(fed.values)))
        return found | _accuracy(exact.result(), ours)


def _exact(optimized: Path, feeds: Sequence[Fed]) -> list[Values]:
    """Outputs of the float model."""
    run = float_runner(optimized, threads=1)
    return [run(fed.floats) for fed in feeds]


def _accuracy(exact: Sequence[Values], ours: Sequence[Values]) -> dict[str, Any]:
    ratios: dict[str, NoiseRatio] = defaultdict(NoiseRatio)
    levels: dict[str, list[Values]] = defaultdict(list)
    for expected, outputs in zip(exact, ours, strict=True):
        for name, output in outputs.items():
            if np.issubdtype(output.dtype, np.floating):
                ratios[name].add(expected[name], output)
                levels[name].append({"exact": expected[name], "ours": output})
    return {
        "sqnr_db": {name: _finite(r.decibels) for name, r in ratios.items()},
        "warnings": [w for name in levels for w in _collapsed(name, levels[name])],
    }


def _some(model: CompiledModel, samples: SampleSet | None) -> Iterator[Fed]:
    if samples is None:
        yield model.sample(None)
        return
    yield from SampleFeeds(model, samples.limited(SQNR_SAMPLES))


def _finite(decibels: float | None) -> float | None:
    return decibels if decibels is not None and math.isfinite(decibels) else None


def _collapsed(name: str, pairs: list[Values]) -> Iterator[dict[str, str]]:
    """An output that takes one value where float takes many has lost its content."""
    exact = np.concatenate([p["exact"].ravel() for p in pairs])
    ours = np.concatenate([p["ours"].ravel() for p in pairs])
    if ours.size > 1 and ours.min() == ours.max() and exact.min() < exact.max():
        text = (
            f"output {name!r} collapsed: it is {ours[0]:.4g} everywhere, and float takes values"
            f" {exact.min():.4g}..{exact.max():.4g}; give it 16 bits, or look at its scale"
        )
        yield {"code": "collapsed-output", "text": text}


def require_same_bits(expected: Values, found: Values, who: str) -> None:
    """Every value of two runs is equal to the last bit.

    Raises:
        TilewrightError: naming the first value that differs.
    """
    for name, value in expected.items():
        other = found[name]
        if value.dtype != other.dtype or value.tobytes() != other.tobytes():
            wrong = int((value != other).sum())
            raise TilewrightError(
                f"{who} and the C runtime differ in {wrong} of {value.size} values of {name!r}:"
                " this is a bug in Tilewright",
                fix="please report it with the model",
                code="TW-4900",
            )


def mode_figures(model: CompiledModel, mode: str, simulated: Simulation) -> Mode:
    """The report's figures of one mode."""
    target, timing = model.target, simulated.timing
    programs = {a.name: model.program(a, mode) for a in model.container.artifacts}
    layers: list[Layer] = []
    for name, program in programs.items():
        layers += layer_rows(program, model.graphs[name], timing.timelines[name])
    return Mode(
        max_cycle=timing.max_cycle,
        lower_bound_cycle=timing.lower_bound_cycle,
        latency_ms=timing.latency_ms,
        lower_bound_ms=timing.lower_bound_ms,
        fps=timing.fps,
        tops=target.peak_tops * target.mode_groups(mode) / target.groups,
        sram_bytes=max(p.sram_bytes for p in programs.values()),
        ddr_bytes=sum(p.ddr_bytes for p in programs.values()),
        layers=tuple(layers),
    )


def layer_rows(program: Program, graph: Graph, timeline: Timeline) -> Iterator[Layer]:
    """Each operator with the time on its busiest engine and what it moves."""
    from tilewright.ops.protocol import NpuOperator, whole
    from tilewright.targets.cost import transfer_bytes

    busy: dict[int, dict[tuple[int, str], float]] = defaultdict(lambda: defaultdict(float))
    moved: dict[int, int] = defaultdict(int)
    for command, span in zip(program.commands, timeline.spans, strict=True):
        kind = type(command.instruction)
        busy[command.node][command.group, kind.ENGINE.name] += span.end - span.start
        moved[command.node] += transfer_bytes(command.instruction)
    for index, node in enumerate(graph.nodes):
        engines = busy[index] or {(0, ""): 0}
        (_, engine), cycles = max(engines.items(), key=lambda pair: pair[1])
        macs = 0
        if isinstance(node.op, NpuOperator):
            output = graph.tensors[node.outputs[0]]
            macs = node.op.work(whole(output.shape), graph.types(node.inputs), output).macs
        yield Layer(
            node.name,
            type(node.op).__name__,
            node.source,
            round(cycles),
            engine,
            moved[index],
            macs,
        )
