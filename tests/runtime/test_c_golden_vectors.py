"""The golden vectors through the C runtime, on every instruction set of this processor.

The cases are those of the reference's own test, with the executor exchanged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from runtime_harness import graph_of, instruction_set, run_operator
from test_c_operators import HERE

from tilewright import numerics
from tilewright.graph import DType, TensorType
from tilewright.ops.clamp import Rescale
from tilewright.ops.reduce import Reduce
from tilewright.runtime import Runtime

sys.path.insert(0, str(Path(__file__).parents[1] / "vectors"))

import golden
import test_golden_reference as reference_tests

PRODUCTS_AND_ROWS = (
    reference_tests.test_convolution,
    reference_tests.test_matrix_product,
    reference_tests.test_matrix_product_of_run_time_operands,
    reference_tests.test_add_and_sub,
    reference_tests.test_add_of_a_constant,
    reference_tests.test_mul,
    reference_tests.test_tables,
    reference_tests.test_softmax,
    reference_tests.test_norms,
    reference_tests.test_attention,
)


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("cases", PRODUCTS_AND_ROWS, ids=lambda f: f.__name__.removeprefix("test_"))
def test_operators(cases, isa, monkeypatch):
    monkeypatch.setattr(reference_tests, "run", run_operator)
    with instruction_set(isa):
        cases()


@pytest.mark.parametrize("isa", HERE)
def test_average(isa):
    with instruction_set(isa):
        for case in golden.cases("average"):
            x = golden.tensor(case, "x")
            y = golden.tensor(case, "y", (*case["y"].shape, 1))
            m = numerics.multiplier(x.scale / (y.scale * x.shape[1]))
            op = Reduce((1, 2), 0, *m, y.dtype.range)
            result = run_operator(op, [case["x"]], [x], y)
            np.testing.assert_array_equal(result[:, 0], case["y"])


@pytest.mark.parametrize("isa", HERE)
def test_borders(isa):
    with instruction_set(isa):
        for case in golden.cases("quantize"):
            dtype = DType[case["type"].upper()]
            t = TensorType(dtype, case["x"].shape, case["scale"], case["zero_point"])
            identity = Rescale(*numerics.multiplier(1.0), *dtype.range)
            runtime = Runtime(graph_of(identity, [t], t), keep_tensors=True)
            values = runtime.run({"x0": case["x"]})["y"]
            np.testing.assert_array_equal(runtime.tensor("x0"), case["y"])
            np.testing.assert_array_equal(values, case["dequantized"])
