"""From an integer graph to a program for one target and NPU mode."""

from __future__ import annotations

from tilewright.compiler.allocate import Overflow, Request, allocate
from tilewright.compiler.placement import Placement, largest_constant_step, place
from tilewright.compiler.schedule import Memory, schedule
from tilewright.compiler.shares import share_out
from tilewright.compiler.synchronise import synchronise
from tilewright.compiler.verify import verify_program
from tilewright.errors import CompileError, ConfigError, nearest
from tilewright.graph import Graph
from tilewright.program import constants
from tilewright.program.program import Port, Program
from tilewright.targets import Target


def compile_graph(graph: Graph, target: Target, mode: str) -> Program:
    """Partition over groups, place, tile, schedule and synchronise; the result is verified.

    Args:
        mode: one of the target's NPU modes.

    Raises:
        ConfigError: the target has no such mode.
        CompileError: an operator does not fit the target.
    """
    if mode not in target.modes:
        raise ConfigError(
            f"{target.name} has no NPU mode {mode!r}",
            fix=nearest(mode, target.modes),
            code="TW-2010",
        )
    groups = target.modes[mode]
    image = constants.lay_out(graph)
    shares = share_out(graph, target, groups)
    placement = place(graph, target, shares, _ring_bytes(graph, target))
    homes, ddr_bytes = _homes(graph, placement, image)
    memory = Memory(graph, placement, image, homes, target.alignment)
    commands, buffers = synchronise(schedule(memory), groups)
    program = Program(
        target=target.name,
        target_digest=target.digest,
        mode=mode,
        groups=groups,
        sram_bytes=placement.sram_bytes,
        constants_bytes=image.bytes,
        ddr_bytes=ddr_bytes,
        inputs=tuple(_port(graph, b.tensor, homes) for b in graph.inputs),
        outputs=tuple(_port(graph, b.tensor, homes) for b in graph.outputs),
        nodes=tuple(n.name for n in graph.nodes),
        buffers=buffers,
        commands=commands,
    )
    verify_program(program, target)
    return program


def _ring_bytes(graph: Graph, target: Target) -> int:
    """A quarter of SRAM, less where the target's window is smaller, more where a tile needs it."""
    least = 2 * _align(largest_constant_step(graph), target.alignment)
    most = target.sram_bytes * 3 // 4
    if least > most:
        raise CompileError(
            f"the constants of one tile take {least // 2} bytes, "
            f"half of what {target.name} can keep of them is {most // 2}",
            fix="choose a target with more SRAM",
            code="TW-3202",
        )
    return _align(
        max(least, min(target.weight_window_bytes, target.sram_bytes // 4)), target.alignment
    )


def _homes(
    graph: Graph, placement: Placement, image: constants.ConstantImage
) -> tuple[dict[str, int], int]:
    """DDR addresses of tensors that need one, and the end of DDR."""
    made = {n.outputs[0]: (i, n) for i, n in enumerate(graph.nodes)}
    last = len(graph.nodes)
    outputs = {b.tensor for b in graph.outputs}
    inputs = {b.tensor for b in graph.inputs}
    homes: dict[str, int] = {}
    requests: list[Request] = []
    for name, tensor in graph.tensors.items():
        if name in made and not made[name][1].inputs:
            homes[name] = image.offsets[made[name][1].name, "value"]
        elif placement.in_ddr(graph, name):
            first = -1 if name in inputs else made[name][0]
            users = graph.consumers[name]
            end = last if name in outputs or name in inputs else max((first, *users))
            requests.append(Request(name, tensor.bytes, first, end))
    placed = allocate(requests, image.bytes, 2**32, constants.ALIGNMENT)
    if isinstance(placed, Overflow):
        raise CompileError("the model's tensors do not fit 4 GiB of DDR", code="TW-3203")
    end = max([image.bytes, *(placed[r.name] + r.bytes for r in requests)])
    return {**homes, **placed}, _align(end, constants.ALIGNMENT)


def _port(graph: Graph, tensor: str, homes: dict[str, int]) -> Port:
    return Port(tensor, homes[tensor], graph.tensors[tensor].bytes)


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
