"""The three executors of an island, each as a function of float values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tilewright.execution import IslandRunner, Values

if TYPE_CHECKING:
    from tilewright.graph import Graph
    from tilewright.machine.timing import Timeline
    from tilewright.program import Program
    from tilewright.targets import Target


def cores() -> int:
    """Processors that this process may use, at most what the runtime takes."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        count = os.cpu_count() or 1
    return min(count, 64)


def reference_runner(graph: Graph) -> IslandRunner:
    """The plain formulas, one operator after another."""
    from tilewright.reference import execute

    return lambda feeds: execute(graph, feeds)


def runtime_runner(graph_file: bytes, threads: int) -> IslandRunner:
    """The C runtime on this processor."""
    from tilewright.runtime import Runtime

    return Runtime(graph_file, threads).run


class IslandMachine:
    """One island in the machine; remembers when everything happened in its last run."""

    def __init__(self, program: Program, target: Target, graph: Graph) -> None:
        from tilewright.machine.machine import Machine
        from tilewright.program import constants

        self.program, self.graph = program, graph
        self.machine = Machine(program, target, constants.lay_out(graph).tobytes())
        self.timeline: Timeline

    def outputs(self, feeds: Values) -> Values:
        """Float outputs from float inputs."""
        from tilewright.borders import dequantize_outputs, quantize_inputs

        result = self.machine.run(quantize_inputs(self.graph, feeds))
        self.timeline = result.timeline
        codes = {}
        for name, data in result.outputs.items():
            tensor = self.graph.tensors[name]
            codes[name] = data.view(tensor.dtype.numpy).reshape(tensor.shape)
        return dequantize_outputs(self.graph, codes)
