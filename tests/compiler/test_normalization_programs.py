"""Normalisations through all three executors, whole and in tiles: the same bits."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import compile_graph
from tilewright.errors import CompileError
from tilewright.graph import DType, Graph, TensorType
from tilewright.machine.machine import Machine
from tilewright.ops.group_norm import GroupNorm
from tilewright.ops.l2_norm import L2Norm
from tilewright.ops.normalization import affine_records
from tilewright.program import constants
from tilewright.reference import execute_codes
from tilewright.runtime import Runtime
from tilewright.targets import Target, load_target

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from random_operators import GENERATORS, Draw
from runtime_harness import graph_of, random_codes

NORMS = ("LayerNorm", "RmsNorm", "GroupNorm", "L2Norm")


def target_of(sram_bytes: int) -> Target:
    return replace(load_target("ax650n"), sram_bytes=sram_bytes, weight_window_bytes=sram_bytes)


def agree(graph: Graph, target: Target, seed: int) -> int:
    """Compare the executors; the number of commands of the one-group program."""
    x = random_codes(np.random.default_rng(seed), graph.tensors["x0"])
    expected = execute_codes(graph, {"x0": x})["y"]
    runtime = Runtime(graph)
    assert np.array_equal(runtime.run_codes({"x0": x})["y"], expected)
    runtime.close()
    image = constants.lay_out(graph).tobytes()
    counts = []
    for mode in ("NPU1", "NPU3"):
        program = compile_graph(graph, target, mode)
        outputs = Machine(program, target, image).run({"x0": x}).outputs
        assert np.array_equal(outputs["y"].view(expected.dtype), expected.ravel())
        counts.append(len(program.commands))
    return counts[0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", NORMS)
def test_three_executors_agree(name: str, seed: int) -> None:
    drawn = GENERATORS[name](Draw(seed))
    agree(graph_of(drawn.op, drawn.inputs, drawn.output), target_of(1 << 21), seed)


def group_norm(shape: tuple[int, ...], groups: int) -> Graph:
    channels = np.arange(1, shape[-1] + 1)
    op = GroupNorm(
        epsilon=0, shift=34, clamp=(-128, 127), groups=groups,
        gains=affine_records(channels << 14, channels << 30),
    )  # fmt: skip
    x = TensorType(DType.S16, shape, 2.0**-12, 0)
    return graph_of(op, [x], TensorType(DType.S8, shape, 2.0**-4, 3))


def test_groups_are_brought_in_turn_where_sram_is_small() -> None:
    graph = group_norm((2, 12, 12, 32), 8)
    assert agree(graph, target_of(16 << 10), 0) > agree(graph, target_of(1 << 20), 0)


def test_a_group_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match="node"):
        compile_graph(group_norm((1, 12, 12, 32), 2), target_of(4 << 10), "NPU1")


def test_a_long_vector_has_a_norm() -> None:
    """The sum of squares alone is far from the limit where C times it is not."""
    shape = (2, 100_000)
    gains = affine_records(np.array([1 << 22]), np.array([0]))
    op = L2Norm(epsilon=0, shift=30, clamp=(-32767, 32767), gains=gains, axis=1)
    x = TensorType(DType.S16, shape, 2.0**-12, 0)
    agree(graph_of(op, [x], TensorType(DType.S16, shape, 2.0**-16, 0)), target_of(1 << 21), 0)
