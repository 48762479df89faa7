"""Whole programs on the machine: the same bits as the reference, however small the SRAM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_graphs import random_graph

from tilewright import graph as integer
from tilewright import numerics
from tilewright.compiler import compile_graph
from tilewright.errors import CompileError, ConfigError
from tilewright.graph import Border, DType, Graph, Node, TensorType
from tilewright.machine.machine import Machine
from tilewright.ops.attention import Attention
from tilewright.ops.reshape import Reshape
from tilewright.program import constants
from tilewright.reference import execute_codes
from tilewright.targets import Target, load_target


def small_target(sram_bytes: int) -> Target:
    return replace(load_target("ax650n"), sram_bytes=sram_bytes, weight_window_bytes=sram_bytes)


@pytest.mark.parametrize("sram_bytes", [1 << 20, 12 << 10, 8 << 10])
@pytest.mark.parametrize("seed", range(30))
def test_programs_give_the_bits_of_the_reference(seed: int, sram_bytes: int) -> None:
    graph = random_graph(seed)
    integer.verify(graph)
    target = small_target(sram_bytes)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, graph.tensors["x"].shape).astype(np.uint8)
    expected = execute_codes(graph, {"x": x})
    image = constants.lay_out(graph).tobytes()
    for mode in ("NPU1", "NPU3"):
        program = compile_graph(graph, target, mode)
        result = Machine(program, target, image).run({"x": x})
        for border in graph.outputs:
            assert np.array_equal(result.outputs[border.tensor], expected[border.tensor].ravel())


def test_a_program_is_the_same_every_time() -> None:
    graph, target = random_graph(3), small_target(12 << 10)
    assert compile_graph(graph, target, "NPU3") == compile_graph(graph, target, "NPU3")


def test_what_cannot_fit_is_refused_with_the_operators_name() -> None:
    with pytest.raises(CompileError, match="node"):
        compile_graph(random_graph(0), small_target(1 << 10), "NPU1")


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'NPU3'"):
        compile_graph(random_graph(1), small_target(1 << 20), "npu3")


def test_a_reshape_is_cut_finer_than_the_outermost_slices_of_its_input() -> None:
    """Joined detector heads: three anchors of 32 KiB each, on 24 KiB of SRAM."""
    tensors = {
        "x": TensorType(DType.S16, (1, 3, 16, 16, 64), 0.25, 0),
        "y": TensorType(DType.S16, (1, 768, 64), 0.25, 0),
    }
    node = Node("reshape", Reshape((1, 768, 64)), ("x",), ("y",), ())
    x, y = (Border(n, n, t.shape, tuple(range(len(t.shape)))) for n, t in tensors.items())
    graph = Graph("joined", tensors, (node,), (x,), (y,))
    target = small_target(24 << 10)
    values = np.arange(3 * 16 * 16 * 64).astype(np.int16).reshape(tensors["x"].shape)
    program = compile_graph(graph, target, "NPU1")
    result = Machine(program, target, b"").run({"x": values})
    assert np.array_equal(result.outputs["y"].view(np.int16), values.ravel())


@pytest.mark.parametrize("mode", ["NPU1", "NPU3"])
def test_rows_of_many_keys_stay_in_sram(mode: str) -> None:
    """Scores of 600 queries and 4096 keys would take 9.8 MB; 640 KiB hold a few rows of them."""
    names = {"q": 600, "k": 4096, "v": 4096}
    tensors = {n: TensorType(DType.S8, (1, rows, 2, 8), 0.05, 0) for n, rows in names.items()}
    tensors["y"] = TensorType(DType.S8, (1, 600, 2, 8), 0.05, 0)
    op = Attention(
        1, 0, *numerics.multiplier(0.2), 0, 62, *numerics.softmax_multiplier(2.0**-8),
        *numerics.multiplier(2.0**-16), 0, (), (), None,
    )  # fmt: skip
    node = Node("attention", op, ("q", "k", "v"), ("y",), ())
    ports = [Border(n, n, t.shape, tuple(range(4))) for n, t in tensors.items()]
    graph = Graph("long", tensors, (node,), tuple(ports[:3]), tuple(ports[3:]))
    integer.verify(graph)
    target = small_target(640 << 10)
    program = compile_graph(graph, target, mode)
    rng = np.random.default_rng(0)
    values = {n: rng.integers(-128, 128, tensors[n].shape).astype(np.int8) for n in names}
    assert program.ddr_bytes < 300_000
    result = Machine(program, target, b"").run(values)
    expected = execute_codes(graph, values)
    assert np.array_equal(result.outputs["y"].view(np.int8), expected["y"].ravel())
