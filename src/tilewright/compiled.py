"""A compiled model, loaded: describe it, feed it, simulate it, run it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.container import Artifact, read_container
from tilewright.data import InputDescription, SampleSet, open_samples
from tilewright.errors import ConfigError, DataError, nearest
from tilewright.execution import Array, Execution, IslandRunner, Plan, Values, make_plan
from tilewright.files import replacing
from tilewright.islands import IslandMachine, cores, reference_runner, runtime_runner
from tilewright.preprocessing import from_json

if TYPE_CHECKING:
    from tilewright.graph import Graph
    from tilewright.machine.timing import Timeline
    from tilewright.program import Program
    from tilewright.targets import Target

EXECUTORS = ("runtime", "machine", "reference")
COMPILED = "compiled.onnx"
NOISE = "random:1"


@dataclass(frozen=True)
class Timing:
    """Time of one run on the simulated NPU: all islands one after the other, CPU nodes aside.

    Attributes:
        timelines: island name -> when everything happened.
    """

    max_cycle: int
    lower_bound_cycle: int
    clock_hz: float
    timelines: Mapping[str, Timeline]

    @property
    def latency_ms(self) -> float:
        return 1000 * self.max_cycle / self.clock_hz

    @property
    def lower_bound_ms(self) -> float:
        return 1000 * self.lower_bound_cycle / self.clock_hz

    @property
    def fps(self) -> float:
        return self.clock_hz / self.max_cycle if self.max_cycle else 0.0


@dataclass(frozen=True)
class Simulation:
    """Outputs and timing of a simulated run.

    Attributes:
        values: every value at a border between CPU and NPU, for comparing executors.
    """

    outputs: Values
    timing: Timing
    values: Values


@dataclass(frozen=True)
class TimedRun:
    """Outputs and latencies of runs on this CPU, in seconds."""

    outputs: Values
    seconds: tuple[float, ...]
    threads: int

    @property
    def milliseconds(self) -> tuple[float, float, float]:
        """Smallest, largest and mean latency."""
        times = [1000 * s for s in self.seconds]
        return min(times), max(times), sum(times) / len(times)


@dataclass(frozen=True)
class Fed:
    """One sample as the compiled model takes it, and as the float model does."""

    name: str
    values: Values
    floats: Values


@dataclass(frozen=True)
class PictureInput:
    """The input that pictures feed: its preprocessing, height and width."""

    description: InputDescription
    size: tuple[int, int]


class CompiledModel:
    """A compiled model.

    Args:
        path: compiled.onnx, or the folder of a build.

    Raises:
        ArtifactError: it is no compiled model.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        self.path = given / COMPILED if given.is_dir() else given
        self.container = read_container(self.path)
        self.plan: Plan = make_plan(self.container)

    # What it is

    @property
    def modes(self) -> tuple[str, ...]:
        """NPU modes that the file holds programs for."""
        return self.container.modes

    def mode(self, wanted: str | None) -> str:
        """The mode asked for, or the first.

        Raises:
            ConfigError: the file has no such program, or none at all.
        """
        if not self.modes:
            raise ConfigError(
                f"{self.path.name} was compiled for {self.container.target}, which runs no program",
                fix="use `run`, or build for an NPU",
                code="TW-2120",
            )
        mode = self.modes[0] if wanted is None else wanted.upper()
        if mode not in self.modes:
            raise ConfigError(
                f"{self.path.name} has no program for {mode!r}",
                fix=nearest(mode, self.modes),
                code="TW-2120",
            )
        return mode

    @functools.cached_property
    def target(self) -> Target:
        """The chip that it was compiled for.

        Raises:
            ConfigError: this version does not know it.
        """
        from tilewright.targets import load_target
        from tilewright.targets.load import parse_target

        text = self.container.metadata.get("target_description", "")
        if text:
            return parse_target(text, f"{self.path.name}: target description")
        return load_target(self.container.target)

    @functools.cached_property
    def graphs(self) -> dict[str, Graph]:
        """Island name -> integer graph."""
        from tilewright import graphfile

        return {a.name: graphfile.read(a.graph) for a in self.container.artifacts}

    def program(self, artifact: Artifact, mode: str) -> Program:
        """The program of one island."""
        from tilewright.program import decode

        return decode(artifact.programs[mode])

    @functools.cached_property
    def inputs(self) -> tuple[InputDescription, ...]:
        """Each input with the preprocessing that it was calibrated with, as the float model."""
        return from_json(self.container.metadata.get("preprocessing", ""), self.path.name)

    def picture_input(self) -> PictureInput:
        """The input that pictures feed.

        Raises:
            DataError: there is none.
        """
        from tilewright.data.preprocess import picture_form

        for description in self.inputs:
            if description.is_image:
                form = picture_form(description)
                return PictureInput(description, (form.height, form.width))
        raise DataError("the model has no input that pictures can feed", code="TW-1210")

    # Feeding

    def sample(self, source: str | Path | None) -> Fed:
        """The first sample of a picture, array or other source; None gives seeded noise."""
        return next(iter(self.samples(NOISE if source is None else source, limit=1)))

    def samples(self, source: str | Path, limit: int | None = None) -> SampleFeeds:
        """Every sample of a source."""
        return SampleFeeds(self, open_samples(source, self.inputs, limit=limit))

    # Executing

    def execution(
        self, by: str = "runtime", *, mode: str | None = None, threads: int | None = None
    ) -> Execution:
        """The model with its islands run by one of EXECUTORS.

        Raises:
            ConfigError: an unknown executor, or a mode that the file has no program for.
        """
        if by not in EXECUTORS:
            raise ConfigError(
                f"no executor is called {by!r}", fix=nearest(by, EXECUTORS), code="TW-2121"
            )
        if by == "machine":
            chosen = self.mode(mode)
            runners: dict[str, IslandRunner] = {
                a.name: self._machine(a, chosen).outputs for a in self.container.artifacts
            }
        elif by == "reference":
            runners = {name: reference_runner(graph) for name, graph in self.graphs.items()}
        else:
            count = threads or cores()
            runners = {a.name: runtime_runner(a.graph, count) for a in self.container.artifacts}
        return Execution(self.plan, runners, threads=threads or 0)

    def execute(self, values: Values, *, by: str = "runtime", mode: str | None = None) -> Values:
        """The model's outputs."""
        return self.outputs_of(self.execution(by, mode=mode).run(values))

    def outputs_of(self, values: Values) -> Values:
        """The model's outputs among all values of a run, in the model's order."""
        return {port.name: values[port.name] for port in self.plan.outputs}

    def simulate(
        self,
        values: Values,
        mode: str,
        *,
        trace: Path | None = None,
        given: Values | None = None,
    ) -> Simulation:
        """Run on the simulated machine.

        Args:
            trace: Perfetto trace to write; with several islands, one file each.
            given: values of an earlier run, whose CPU results are taken.
        """
        from tilewright.machine.timing import lower_bound

        machines = {a.name: self._machine(a, mode) for a in self.container.artifacts}
        runners = {name: machine.outputs for name, machine in machines.items()}
        found = Execution(self.plan, runners).run(values, given)
        bounds = [lower_bound(m.program, self.target).cycle for m in machines.values()]
        timelines = {name: m.timeline for name, m in machines.items()}
        timing = Timing(
            sum(t.max_cycle for t in timelines.values()),
            sum(bounds),
            self.target.clock_hz,
            timelines,
        )
        if trace is not None:
            self._write_traces(machines, trace)
        return Simulation(self.outputs_of(found), timing, found)

    def run(
        self, values: Values, *, repeat: int = 1, warmup: int = 0, threads: int | None = None
    ) -> TimedRun:
        """Run on this CPU and take the time, border conversions included."""
        execution = self.execution("runtime", threads=threads)
        for _ in range(warmup):
            execution.run(values)
        seconds = []
        for _ in range(max(1, repeat)):
            start = time.perf_counter()
            found = execution.run(values)
            seconds.append(time.perf_counter() - start)
        return TimedRun(self.outputs_of(found), tuple(seconds), threads or cores())

    def _machine(self, artifact: Artifact, mode: str) -> IslandMachine:
        program = self.program(artifact, mode)
        return IslandMachine(program, self.target, self.graphs[artifact.name])

    def _write_traces(self, machines: Mapping[str, IslandMachine], path: Path) -> None:
        from tilewright.machine.trace import trace_json

        for name, machine in machines.items():
            several = len(machines) > 1
            file = path.with_name(f"{path.stem}.{name}{path.suffix}") if several else path
            with replacing(file) as temporary:
                text = trace_json(machine.program, machine.timeline, self.target)
                temporary.write_text(text, encoding="utf-8")

    # Text and files

    def program_texts(self, mode: str | None) -> dict[str, str]:
        """Island name -> disassembly."""
        from tilewright.program import disassemble

        chosen = self.mode(mode)
        return {a.name: disassemble(self.program(a, chosen)) for a in self.container.artifacts}

    def graph_texts(self) -> dict[str, str]:
        """Island name -> integer graph as text."""
        from tilewright import graph

        return {name: graph.text(g) for name, g in self.graphs.items()}

    def write_outputs(self, outputs: Values, folder: Path) -> dict[str, Path]:
        """Write each output as .npy; returns output name -> file."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = {}
        for name, array in outputs.items():
            path = folder / f"{''.join(c if c.isalnum() or c in '._-' else '_' for c in name)}.npy"
            with replacing(path) as temporary, temporary.open("wb") as stream:
                np.save(stream, array)
            paths[name] = path
        return paths


class SampleFeeds:
    """Samples as a compiled model takes them; iterates as often as wanted."""

    def __init__(self, model: CompiledModel, samples: SampleSet) -> None:
        self.set = samples
        self._shapes = {p.name: p.shape for p in model.plan.inputs}
        self._pictures = [d.name for d in model.inputs if d.takes_pictures]

    def __len__(self) -> int:
        return len(self.set)

    def __iter__(self) -> Iterator[Fed]:
        for sample in self.set:
            values = dict(sample.feeds)
            for name in self._pictures:
                if self.set.meaningless:
                    values[name] = _noise_picture(self._shapes[name])
                    continue
                if not sample.pixels or name not in sample.pixels:
                    raise DataError(
                        f"input {name!r} takes u8 pictures, and sample {sample.name} is an array",
                        fix="give pictures",
                        code="TW-1233",
                    )
                values[name] = sample.pixels[name][None]
            yield Fed(sample.name, values, sample.feeds)


def _noise_picture(shape: tuple[int, ...]) -> Array:
    """A seeded picture of noise, u8."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
