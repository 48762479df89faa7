"""C equals `reference`, bit for bit: every operator, mixed types, odd shapes, all kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_operators import GENERATORS, Draw
from runtime_harness import ISAS, graph_of, instruction_set, random_codes, run_operator

from tilewright.errors import TilewrightError
from tilewright.graph import verify
from tilewright.graphfile import read, write
from tilewright.ops.catalog import OPERATORS
from tilewright.runtime import Runtime

PRODUCTS = ("Conv", "Dense", "ConvTranspose", "MatMul", "Attention")


def available(isa):
    """Whether this processor has the instruction set; the portable one always runs."""
    if isa == "portable":
        return True
    drawn = GENERATORS["Rescale"](Draw(0))
    with instruction_set(isa):
        try:
            Runtime(graph_of(drawn.op, drawn.inputs, drawn.output)).close()
        except TilewrightError:
            return False
    return True


HERE = [isa for isa in ISAS if available(isa)]


def test_every_operator_is_drawn():
    assert {cls.__name__ for cls in OPERATORS.values()} == set(GENERATORS)


def check(name, seed, isa):
    draw = Draw(seed)
    drawn = GENERATORS[name](draw)
    graph = graph_of(drawn.op, drawn.inputs, drawn.output)
    verify(graph)
    arrays = [random_codes(draw.rng, t) for t in drawn.inputs]
    (expected,) = drawn.op.reference(arrays, drawn.inputs, [drawn.output])
    with instruction_set(isa):
        for threads in (1, 2):
            y = run_operator(drawn.op, arrays, drawn.inputs, drawn.output, threads)
            np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_products(name, isa, seed):
    check(name, seed, isa)


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("name", sorted(set(GENERATORS) - set(PRODUCTS)))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_other_operators(name, isa, seed):
    check(name, seed, isa)


@pytest.mark.parametrize("name", sorted(GENERATORS))
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_graph_file_round_trip(name, seed):
    drawn = GENERATORS[name](Draw(seed))
    data = write(graph_of(drawn.op, drawn.inputs, drawn.output))
    assert write(read(data)) == data
