"""Trained transformers and their like at their tasks: float, Tilewright and other tools.

    python benchmarks/transformer_tasks.py
    python benchmarks/transformer_tasks.py --models minilm-l6 magika
    python benchmarks/transformer_tasks.py --quick           a tenth of the questions, one NPU mode

    minilm-l6    sentence vectors: find each of 300 verses in another translation
    vit-s-focus  saliency maps of 73 pictures
    ppocrv4-rec  read 100 lines, clean and worn
    magika       tell the type of files

Every tool calibrates on the same 32 samples, none of which is asked. Tilewright's settings run as
QDQ in onnxruntime and, in integers only, in the C runtime: `tilewright` with its defaults, where
the residual stream has 16 bits, and `tilewright 8 bit` without that. Peers are described in
`peers.py`; their models run in onnxruntime with its optimisations.

`tilewright fetch transformers benchmarks` brings what is needed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import building
import numpy as np
import onnx
import peers
import results
import sessions
from filetypes import FileTypes
from lines import LineReading
from models import REAL
from saliency import Saliency
from tasks import Array, Figures, Task
from texts import VerseRetrieval

TARGET = "ax650n"
MODES = ("NPU1", "NPU3")
QUICK_STEP = 10

TASKS: dict[str, Callable[[int], Task]] = {
    task.network: task for task in (VerseRetrieval, Saliency, LineReading, FileTypes)
}
SETTINGS: dict[str, dict[str, Any]] = {
    "tilewright": {},
    "tilewright 8 bit": {"residual_stream": "same"},
}


@dataclass(frozen=True)
class Row:
    """One setting, executed in one way, at one task.

    Args:
        figures: the task's own, and those against float.
        seconds: to quantize; for Tilewright, of the whole build.
        nodes_cpu: operator and reason of what does not run on the NPU.
        cycles: NPU mode -> `max_cycle`.
        bytes_moved: NPU mode -> bytes between DDR and SRAM in one run.
        failure: why there are no figures.
    """

    network: str
    setting: str
    execution: str
    questions: int
    figures: Figures
    seconds: float = 0.0
    nodes_npu: int = 0
    nodes_cpu: list[str] = field(default_factory=list)
    cycles: dict[str, int] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)
    failure: str = ""


class Examination:
    """One task, its questions answered by float."""

    def __init__(self, task: Task, work: Path, threads: int) -> None:
        network = REAL[task.network]
        self.task, self.threads = task, threads
        calibrated = dataclasses.replace(network, samples=lambda _: iter(task.calibration()))
        self.source = building.prepare(calibrated, work)
        names = self.source.inputs
        self.questions = [dict(zip(names, q, strict=True)) for q in task.questions()]
        self.exact = self.answers(sessions.run(self.source.model, threads=threads))

    def answers(self, run: sessions.Run) -> Array:
        """The first output for each question, along the batch axis."""
        outputs = (run(feeds) for feeds in self.questions)
        return np.concatenate([next(iter(found.values())) for found in outputs])

    def row(self, setting: str, execution: str, run: sessions.Run, **costs: Any) -> Row:
        """What a quantized model makes of the task."""
        found = self.answers(run)
        figures = self.task.figures(found) | self.task.comparison(self.exact, found)
        return Row(self.task.network, setting, execution, len(found), figures, **costs)

    def of_float(self) -> Row:
        """Float's own figures."""
        figures = self.task.figures(self.exact)
        return Row(self.task.network, "float", "onnxruntime", len(self.exact), figures)

    def failed(self, setting: str, error: Exception) -> Row:
        """A tool that gives no model."""
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Row(self.task.network, setting, "onnxruntime", 0, {}, failure=reason[:200])


def of_tilewright(
    examination: Examination, setting: str, modes: tuple[str, ...], folder: Path
) -> Iterator[Row]:
    """One setting in both executions."""
    built = building.build(
        examination.source, TARGET, folder, modes=modes, choices=SETTINGS[setting]
    )
    costs = _costs(built)
    threads = examination.threads
    in_onnxruntime = sessions.run(built.quantized, threads=threads)
    yield examination.row(setting, "onnxruntime", in_onnxruntime, **costs)
    execution = built.model.execution("runtime", threads=threads)
    yield examination.row(
        setting, "C runtime", lambda feeds: built.model.outputs_of(execution.run(feeds)), **costs
    )


def _costs(built: building.Built) -> dict[str, Any]:
    report = built.build.report()
    return {
        "seconds": sum(stage.seconds for stage in report.stages),
        "nodes_npu": report.nodes_npu,
        "nodes_cpu": [f"{n.op} {n.name}: {n.reason}" for n in report.nodes_cpu],
        "cycles": {mode: figures.max_cycle for mode, figures in report.modes.items()},
        "bytes_moved": {
            mode: sum(layer.ddr_bytes for layer in figures.layers)
            for mode, figures in report.modes.items()
        },
    }


def of_peer(examination: Examination, peer: str, folder: Path) -> Row:
    """Another tool's model in onnxruntime."""
    source = examination.source
    static, target = folder / "static.onnx", folder / f"{peer}.onnx"
    if not static.exists():
        onnx.save(peers.static(onnx.load(source.model), source.network.shapes), static)
    start = time.perf_counter()
    peers.quantize(peer, static, building.read_samples(source), target)
    seconds = time.perf_counter() - start
    run = sessions.run(target, threads=examination.threads)
    return examination.row(peer, "onnxruntime", run, seconds=seconds)


def measure(args: argparse.Namespace, work: Path) -> Iterator[Row]:
    """Every row that the command line asks for."""
    step, modes = (QUICK_STEP, MODES[:1]) if args.quick else (1, MODES)
    for name in args.models:
        examination = Examination(TASKS[name](step), work, args.threads)
        folder = examination.source.model.parent
        yield examination.of_float()
        for setting in args.settings:
            place = folder / setting.replace(" ", "-")
            try:
                yield from of_tilewright(examination, setting, modes, place)
            except Exception as error:  # noqa: BLE001 - the other rows are still worth having
                traceback.print_exc()
                yield examination.failed(setting, error)
        for peer in args.peers:
            try:
                yield of_peer(examination, peer, folder)
            except Exception as error:  # noqa: BLE001 - another tool's failure is a result
                yield examination.failed(peer, error)


def print_row(row: Row) -> None:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in row.figures.items())
    costs = ", ".join(
        f"{mode} {cycles:,} cycles {row.bytes_moved[mode] / 1e6:.1f} MB"
        for mode, cycles in row.cycles.items()
    )
    print(
        f"{row.network:12} {row.setting:17} {row.execution:11} {row.questions:4} questions"
        f" | {row.failure or figures}"
        + (f" | {costs}, {len(row.nodes_cpu)} CPU nodes" if costs else "")
        + (f" | {row.seconds:.1f} s" if row.seconds else ""),
        flush=True,
    )


def _merged(found: list[Row]) -> list[dict[str, Any]]:
    """The rows of the results, those of the same network, setting and execution replaced."""
    before = results.read("transformer_tasks")
    rows = {_key(r): r for r in (before["rows"] if before else [])}
    return list((rows | {_key(r): r for r in map(dataclasses.asdict, found)}).values())


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["network"], row["setting"], row["execution"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument(
        "--peers", nargs="*", choices=peers.PEERS, default=list(peers.TRANSFORMER_PEERS)
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the questions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="keep artifacts here")
    parser.add_argument("--merge", action="store_true", help="keep other rows of the results")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        work = (args.work or Path(scratch)) / "tasks"
        for row in measure(args, work):
            rows.append(row)
            print_row(row)
    if not args.no_write:
        settings = {"target": TARGET, "calibration": building.CALIBRATION, "quick": args.quick}
        found = _merged(rows) if args.merge else rows
        results.write("transformer_tasks", found, settings=settings)
    return int(any(row.failure for row in rows if row.setting in SETTINGS))


if __name__ == "__main__":
    sys.exit(main())
