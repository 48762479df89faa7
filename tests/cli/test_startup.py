"""What a command does not load, and that it comes when it is needed."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, sys
from tilewright.cli.startup import prepare
prepare()
import onnx_ir as ir
print(os.environ["OPENBLAS_NUM_THREADS"], "sympy.core" in sys.modules)
print((ir.SymbolicDim("n") * 2).evaluate({"n": 21}), "sympy.core" in sys.modules)
"""


def test_sympy_is_loaded_when_a_free_dimension_is_calculated_with() -> None:
    inherited = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=inherited
    )
    assert found.stdout.split() == ["1", "False", "42", "True"]
