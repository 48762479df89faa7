"""From an integer graph to a program for one target and NPU mode."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.compiler.allocate import Overflow, Request, allocate
from tilewright.compiler.placement import Placement, largest_constant_step, place
from tilewright.compiler.schedule import Memory, schedule
from tilewright.compiler.shares import Shares, share_out
from tilewright.compiler.synchronise import synchronise
from tilewright.compiler.verify import verify_program
from tilewright.errors import CompileError, ConfigError, nearest
from tilewright.graph import Graph
from tilewright.machine.timing import simulate_time
from tilewright.program import constants
from tilewright.program.program import Port, Program
from tilewright.targets import Target

RING_SHARES = (0.5, 0.25)
"""Parts of SRAM that the ring of constants is tried with, before the least that it must have."""


def compile_graph(graph: Graph, target: Target, mode: str) -> Program:
    """Share out over groups, place, tile, schedule and synchronise, and keep the fastest program.

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
    programs: list[Program] = []
    refusals: list[CompileError] = []
    for shares in share_out(graph, target, groups):
        try:
            programs += [
                _assemble(graph, target, mode, placement, image)
                for placement in _placements(graph, target, shares)
            ]
        except CompileError as error:
            refusals.append(error)
    if not programs:
        raise refusals[0]
    best = min(programs, key=lambda p: simulate_time(p, target).max_cycle)
    verify_program(best, target)
    return best


def _placements(graph: Graph, target: Target, shares: Shares) -> Iterator[Placement]:
    """Placements with a large ring, and with a smaller one if tensors had to leave SRAM for it.

    Raises:
        CompileError: not even the smallest ring leaves room for every operator.
    """
    least = 2 * _align(largest_constant_step(graph), target.alignment)
    if least > target.sram_bytes * 3 // 4:
        raise CompileError(
            f"the constants of one tile take {least // 2} bytes, "
            f"what {target.name} can keep of them is {target.sram_bytes * 3 // 8}",
            fix="choose a target with more SRAM",
            code="TW-3202",
        )
    rings = [
        _align(
            max(least, min(target.weight_window_bytes, int(target.sram_bytes * share))),
            target.alignment,
        )
        for share in RING_SHARES
    ]
    found = False
    for ring in dict.fromkeys(rings):
        try:
            placement = place(graph, target, shares, ring)
        except CompileError:
            continue
        found = True
        yield placement
        if not placement.gave_up:
            return
    if not found:
        yield place(graph, target, shares, least)


def _assemble(
    graph: Graph, target: Target, mode: str, placement: Placement, image: constants.ConstantImage
) -> Program:
    homes, ddr_bytes = _homes(graph, placement, image)
    drafts = schedule(Memory(graph, placement, image, homes, target))
    commands, buffers = synchronise(drafts, placement.shares.groups)
    return Program(
        target=target.name,
        target_digest=target.digest,
        mode=mode,
        groups=placement.shares.groups,
        sram_bytes=placement.sram_bytes,
        constants_bytes=image.bytes,
        ddr_bytes=ddr_bytes,
        inputs=tuple(_port(graph, b.tensor, homes) for b in graph.inputs),
        outputs=tuple(_port(graph, b.tensor, homes) for b in graph.outputs),
        nodes=tuple(n.name for n in graph.nodes),
        buffers=buffers,
        commands=commands,
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
            (field,) = made[name][1].op.constants()
            homes[name] = image.offsets[made[name][1].name, field]
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
