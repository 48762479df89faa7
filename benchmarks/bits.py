"""Three executions of each network, compared bit by bit: reference, machine and C runtime.

    python benchmarks/bits.py                                  every real network, every target
    python benchmarks/bits.py --structures DIR                 published architectures besides
    python benchmarks/bits.py --structures DIR --shard 2/8     the second of eight equal parts
    python benchmarks/bits.py --models face-eye --targets ax650n

Each network is built as `tilewright build` builds it, for every target. Of every sample, the
reference gives all stored tensors; the C runtime (1 and 2 threads, each instruction set of this
processor) must give the same ones, and on the last sample the machine, in each NPU mode, the same
outputs of every NPU part. Where CPU nodes stand between such parts, every executor is given the
same CPU results. The target `cpu` has no program: there the reference and the C runtime are
compared. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import architectures
import building
import models
import numpy as np
import numpy.typing as npt
import results
from instruction_sets import instruction_set, usable_instruction_sets

from tilewright import borders, reference
from tilewright.errors import TilewrightError
from tilewright.evaluation.statistics import NoiseRatio
from tilewright.execution import Execution, IslandRunner, Values
from tilewright.graph import Graph
from tilewright.runtime import Runtime
from tilewright.stages import float_runner
from tilewright.targets import load_target

Array = npt.NDArray[Any]

MODES = ("NPU1", "NPU3")


@dataclass
class Row:
    """One network on one target.

    Args:
        origin: where a structure comes from; empty for real networks.
        nodes_npu, nodes_cpu: operators of the float model, by where they run.
        cycles: NPU mode -> `max_cycle`.
        seconds: stage or executor -> wall time.
        peak_mib: largest resident memory of the build's process.
        sqnr_db: output -> decibels against float, over the samples compared.
        executors: what was compared with the reference.
        difference: the first one found; empty where all bits agree.
        failure: why nothing could be compared.
    """

    network: str
    target: str
    shapes: tuple[tuple[int, ...], ...]
    trained: bool
    origin: str = ""
    nodes_npu: int = 0
    nodes_cpu: list[str] = field(default_factory=list)
    cycles: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    peak_mib: float = 0.0
    sqnr_db: dict[str, float | None] = field(default_factory=dict)
    executors: list[str] = field(default_factory=list)
    difference: str = ""
    failure: str = ""

    @property
    def passed(self) -> bool:
        return not self.difference and not self.failure


class Difference(Exception):
    """The first value in which an executor disagrees."""


def compare(who: str, name: str, expected: Array, found: Array) -> None:
    """Raise Difference unless both hold the same bits."""
    if expected.dtype == found.dtype and expected.tobytes() == found.tobytes():
        return
    if expected.shape != found.shape or expected.dtype != found.dtype:
        raise Difference(
            f"{who}: {name} is {found.dtype}{list(found.shape)},"
            f" the reference {expected.dtype}{list(expected.shape)}"
        )
    wrong = expected != found
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise Difference(
        f"{who}: {int(wrong.sum())} of {wrong.size} values of {name} differ,"
        f" first at {list(index)}: {found[index]} instead of {expected[index]}"
    )


class Reference:
    """Runs islands by the plain formulas and keeps every stored tensor."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self.graphs = graphs
        self.codes: dict[str, dict[str, Array]] = {}

    def runners(self) -> dict[str, IslandRunner]:
        return {name: partial(self._run, name) for name in self.graphs}

    def _run(self, name: str, feeds: Values) -> Values:
        graph = self.graphs[name]
        codes = reference.execute_codes(graph, borders.quantize_inputs(graph, feeds))
        self.codes[name] = codes
        return borders.dequantize_outputs(graph, codes)


class CRuntime:
    """Runs islands by the C runtime and compares every stored tensor."""

    def __init__(self, who: str, expected: Reference, runtimes: Mapping[str, Runtime]) -> None:
        self.who, self.expected, self.runtimes = who, expected, runtimes

    def runners(self) -> dict[str, IslandRunner]:
        return {name: partial(self._run, name) for name in self.runtimes}

    def _run(self, name: str, feeds: Values) -> Values:
        runtime = self.runtimes[name]
        outputs = runtime.run(feeds)
        for tensor, codes in self.expected.codes[name].items():
            compare(self.who, f"{name}/{tensor}", codes, runtime.tensor(tensor))
        return outputs


def check(built: building.Built, samples: Sequence[Values], row: Row) -> Iterator[str]:
    """Run every executor over every sample; yields the names of those that agreed.

    Raises:
        Difference: at the first value that is not the reference's.
    """
    model = built.model
    plan = model.plan
    expected = Reference(model.graphs)
    run_float = float_runner(built.optimized)
    ratios: dict[str, NoiseRatio] = {}
    given: list[tuple[Values, Values, dict[str, dict[str, Array]]]] = []
    start = time.perf_counter()
    by_reference = Execution(plan, expected.runners())
    for values in samples:
        found = by_reference.run(values)
        given.append((values, found, dict(expected.codes)))
        for name, exact in run_float(values).items():
            ratios.setdefault(name, NoiseRatio()).add(exact, found[name])
    row.seconds["reference"] = (time.perf_counter() - start) / len(samples)
    row.sqnr_db = {name: _finite(ratio.decibels) for name, ratio in ratios.items()}
    yield "reference"

    files = {a.name: a.graph for a in model.container.artifacts}
    sets = usable_instruction_sets(next(iter(files.values())))
    for isa in sets:
        for threads in (1, 2):
            who = f"C {isa} x{threads}"
            with instruction_set(isa):
                runtimes = {n: Runtime(f, threads, keep_tensors=True) for n, f in files.items()}
            start = time.perf_counter()
            by_c = Execution(plan, CRuntime(who, expected, runtimes).runners())
            for values, borders_found, codes in given:
                expected.codes = codes
                compare_borders(who, borders_found, by_c.run(values, borders_found))
            row.seconds[who] = (time.perf_counter() - start) / len(samples)
            for runtime in runtimes.values():
                runtime.close()
            yield who

    for mode in model.modes:
        who = f"machine {mode}"
        start = time.perf_counter()
        values, borders_found, _ = given[-1]
        simulation = model.simulate(values, mode, given=borders_found)
        compare_borders(who, borders_found, simulation.values)
        row.seconds[who] = time.perf_counter() - start
        yield who


def compare_borders(who: str, expected: Values, found: Values) -> None:
    """Compare every value at a border between NPU parts, CPU nodes and the caller."""
    for name, value in expected.items():
        compare(who, name, value, found[name])


def _finite(decibels: float | None) -> float | None:
    return decibels if decibels is not None and np.isfinite(decibels) else None


def measure(network: models.Network, target: str, work: Path, samples: int) -> Row:
    """Build one network for one target and compare the executors."""
    row = Row(network.name, target, network.shapes, network.trained, network.origin)
    try:
        source = building.prepare(network, work)
        modes = [m for m in MODES if m in load_target(target).modes]
        built = building.build(source, target, source.model.parent / target, modes=modes)
        report = built.build.report()
        row.seconds.update({stage.name: stage.seconds for stage in report.stages})
        row.cycles = {mode: figures.max_cycle for mode, figures in report.modes.items()}
        row.peak_mib = report.peak_mib
        row.nodes_npu = report.nodes_npu
        row.nodes_cpu = [f"{n.op} {n.name}: {n.reason}" for n in report.nodes_cpu]
        for who in check(built, building.read_samples(source)[:samples], row):
            row.executors.append(who)
    except Difference as difference:
        row.difference = str(difference)
    except Exception as error:  # noqa: BLE001 - one network's failure is a result
        row.failure = f"{type(error).__name__}: {error}"
        if not isinstance(error, TilewrightError):
            row.failure += f" ({traceback.extract_tb(error.__traceback__)[-1].name})"
    return row


def networks_of(args: argparse.Namespace) -> list[models.Network]:
    """The networks that the command line asks for."""
    listed = architectures.names(args.structures) if args.structures else []
    known = [*models.REAL, *listed]
    unknown = set(args.models or ()) - set(known)
    if unknown:
        sys.exit(f"no network is called {sorted(unknown)[0]}: choose from {', '.join(known)}")
    part, parts = args.shard
    return [
        models.REAL[name]
        if name in models.REAL
        else architectures.architecture(args.structures, name)
        for name in (args.models or known)[part - 1 :: parts]
    ]


def shard(text: str) -> tuple[int, int]:
    """`2/8` as (2, 8)."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not such as 2/8")
    return int(part), int(parts)


def _merged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the results, those of the same network and target replaced."""
    before = results.read("bits")
    rows = {(r["network"], r["target"]): r for r in (before["rows"] if before else [])}
    return list((rows | {(r["network"], r["target"]): r for r in found}).values())


def print_row(row: Row) -> None:
    cycles = ", ".join(f"{mode} {count:,}" for mode, count in row.cycles.items())
    build = sum(row.seconds.get(stage, 0.0) for stage in ("import", "quantize", "compile"))
    ratios = " ".join(f"{v:.1f}" for v in [*row.sqnr_db.values()][:3] if v is not None)
    slowest = max((row.seconds.get(f"machine {m}", 0.0) for m in row.cycles), default=0.0)
    verdict = row.failure or row.difference or f"{len(row.executors)} executors agree"
    print(
        f"{row.network:22} {row.target:7} {row.nodes_npu:4} NPU {len(row.nodes_cpu):2} CPU"
        f" | build {build:5.1f} s, reference {row.seconds.get('reference', 0):.1f} s,"
        f" machine {slowest:.1f} s, {row.peak_mib:.0f} MiB | SQNR {ratios or '-'} dB"
        f" | {cycles or 'no program'} | {verdict}",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--targets", nargs="+", default=list(building.npu_targets()))
    parser.add_argument("--structures", type=Path, metavar="DIR", help="folder of structures.py")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="such as 2/8")
    parser.add_argument("--samples", type=int, default=2, help="samples compared (default 2)")
    parser.add_argument("--jobs", type=int, default=1, help="networks at a time")
    parser.add_argument("--work", type=Path, help="keep artifacts here")
    parser.add_argument("--merge", action="store_true", help="keep other rows of the results")
    parser.add_argument("--no-write", action="store_true", help="leave results/bits.json alone")
    return parser.parse_args()


def _work(network: models.Network, kept: Path | None, scratch: Path) -> Path:
    """The folder of its artifacts, which nothing of a network that is only measured survives."""
    return scratch if kept is None or architectures.measured_only(network) else kept


def main() -> int:
    args = arguments()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        cases = [(n, t) for n in networks_of(args) for t in args.targets]
        # A process for each case: its memory comes back, and a crash would be its own.
        with ProcessPoolExecutor(args.jobs, max_tasks_per_child=1) as pool:
            futures = [
                pool.submit(measure, n, t, _work(n, args.work, Path(scratch)), args.samples)
                for n, t in cases
            ]
            for future in futures:
                rows.append(future.result())
                print_row(rows[-1])
    failed = [row for row in rows if not row.passed]
    print(f"{len(rows) - len(failed)} of {len(rows)} agree in every bit")
    if not args.no_write:
        settings = {"samples": args.samples}
        found = [dataclasses.asdict(row) for row in rows]
        results.write("bits", _merged(found) if args.merge else found, settings=settings)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
