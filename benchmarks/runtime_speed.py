"""Latency of the C runtime on this processor beside onnxruntime, float32 and its own int8.

    python benchmarks/runtime_speed.py
    python benchmarks/runtime_speed.py --models efficientnet-lite0 open-nsfw --threads 1 2 4

One picture at a time, float in and float out. All take turns within one process, after a warm-up;
medians. onnxruntime's idle threads do not spin. The C runtime is timed with the best instruction
set of this processor, and with each of the others.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import architectures
import building
import numpy as np
import numpy.typing as npt
import onnx
import peers
import results
import sessions
from instruction_sets import instruction_set, usable_instruction_sets
from models import REAL, Network

from tilewright.runtime import Runtime

Array = npt.NDArray[Any]

TARGET = "cpu"
FLOAT, INT8 = "onnxruntime float32", "onnxruntime int8 (u8)"
WARM_UP = 5


@dataclass(frozen=True)
class Row:
    """Median latency of one engine.

    Args:
        ratio: to onnxruntime's float32 in the same run; below 1 is faster.
    """

    network: str
    threads: int
    engine: str
    milliseconds: float
    fastest: float
    ratio: float


def engines(
    source: building.Source, graph_file: bytes, int8: Path, threads: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and one inference of each engine; the C runtime's best instruction set comes first."""
    feeds = building.read_samples(source)[0]
    for name, model in ((FLOAT, source.model), (INT8, int8)):
        session = sessions.session(model, threads=threads)
        yield name, partial(session.run, None, feeds)
    for isa in reversed(usable_instruction_sets(graph_file)):
        with instruction_set(isa):
            runtime = Runtime(graph_file, threads)
        yield f"C runtime, {isa}", partial(runtime.run, feeds)


def measure(network: Network, threads: list[int], rounds: int, work: Path) -> Iterator[Row]:
    source = building.prepare(network, work)
    built = building.build(source, TARGET, source.model.parent / TARGET)
    (artifact,) = built.model.container.artifacts
    static, int8 = work / "static.onnx", work / "int8.onnx"
    onnx.save(peers.static(onnx.load(source.model), network.shapes), static)
    peers.quantize("ort-u8", static, building.read_samples(source), int8)
    for count in threads:
        ready = dict(engines(source, artifact.graph, int8, count))
        taken: dict[str, list[float]] = {name: [] for name in ready}
        for turn in range(WARM_UP + rounds):
            for name, run in ready.items():
                start = time.perf_counter()
                run()
                if turn >= WARM_UP:
                    taken[name].append(1000 * (time.perf_counter() - start))
        base = statistics.median(taken[FLOAT])
        for name, times in taken.items():
            middle = statistics.median(times)
            yield Row(network.name, count, name, middle, float(np.min(times)), middle / base)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["efficientnet-lite0"], metavar="NAME")
    parser.add_argument("--structures", type=Path, metavar="DIR", help="folder of structures.py")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40, help="timed runs of each engine")
    parser.add_argument("--provisional", action="store_true", help="the machine is not idle")
    parser.add_argument("--no-write", action="store_true", help="leave results alone")
    args = parser.parse_args()
    listed = architectures.names(args.structures) if args.structures else []
    unknown = set(args.models) - {*REAL, *listed}
    if unknown:
        known = ", ".join((*REAL, *listed))
        parser.error(f"no network is called {sorted(unknown)[0]}: choose from {known}")
    rows = []
    for name in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            network = REAL.get(name) or architectures.architecture(args.structures, name)
            for row in measure(network, args.threads, args.rounds, Path(scratch)):
                rows.append(row)
                print(
                    f"{row.network} x{row.threads} {row.engine:24} median"
                    f" {row.milliseconds:8.2f} ms, {row.ratio:5.2f} of float32",
                    flush=True,
                )
    if not args.no_write:
        settings = {"rounds": args.rounds, "warm_up": WARM_UP}
        results.write("runtime_speed", rows, settings=settings, provisional=args.provisional)
    return 0


if __name__ == "__main__":
    sys.exit(main())
