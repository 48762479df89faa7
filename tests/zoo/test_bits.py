"""Real networks through every stage: three executions with the same bits, and close to float.

`benchmarks/bits.py` does the same for all networks on all targets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = [
    # network, target, least signal-to-noise ratio of its worst output in dB
    ("efficientnet-lite0", "ax650n", 20.0),
    ("mtcnn-rnet", "ax650n", 12.0),
    ("mtcnn-rnet", "a311d", 12.0),
    ("mtcnn-rnet", "tda4vm", 10.0),
    ("ppocr-cls", "ax650n", 20.0),
    ("mtcnn-rnet", "cpu", 12.0),
]


@pytest.mark.usefixtures("assets")
@pytest.mark.parametrize(("network", "target", "least"), CASES)
def test_three_executions_agree_and_stay_close_to_float(
    network: str, target: str, least: float, tmp_path: Path
) -> None:
    from bits import measure
    from models import REAL

    row = measure(REAL[network], target, tmp_path, samples=1)

    assert row.failure == ""
    assert row.difference == ""
    assert row.nodes_cpu == []
    assert min(ratio for ratio in row.sqnr_db.values() if ratio is not None) >= least
    assert any(executor.startswith("C ") for executor in row.executors)
    assert target == "cpu" or "machine NPU1" in row.executors


def test_a_difference_names_its_place() -> None:
    import numpy as np
    from bits import Difference, compare

    expected = np.zeros((2, 3), np.uint8)
    found = expected.copy()
    found[1, 2] = 7

    with pytest.raises(Difference, match=r"1 of 6 values of x differ, first at \[1, 2\]: 7"):
        compare("machine NPU1", "x", expected, found)
