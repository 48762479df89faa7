"""Networks with attention, normalisation and integer inputs: same bits, and close to float.

`benchmarks/bits.py` does the same for all networks on all targets;
`benchmarks/transformer_tasks.py` puts them to their tasks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tilewright.assets.fetch import fetch

if TYPE_CHECKING:
    from bits import Row
    from models import Network

NARROW = 160
"""Pixels of a line that are read here, of 480."""


@pytest.fixture(scope="module", autouse=True)
def networks(assets: None) -> None:
    fetch(["ppocrv4-rec", "magika", "magika-config"])


def measured(network: Network, folder: Path, *, least: float) -> Row:
    """The network on ax650n, whose executions agree and have `least` dB against float."""
    from bits import measure

    row = measure(network, "ax650n", folder, samples=1)
    assert row.failure == ""
    assert row.difference == ""
    assert any(executor.startswith("C ") for executor in row.executors)
    assert {"machine NPU1", "machine NPU3"} <= set(row.executors)
    assert min(ratio for ratio in row.sqnr_db.values() if ratio is not None) >= least
    return row


def test_a_recogniser_of_lines_with_attention(tmp_path: Path) -> None:
    from models import REAL

    wide = REAL["ppocrv4-rec"]
    narrow = replace(
        wide,
        shapes=((1, 3, 48, NARROW),),
        samples=lambda count: ((line[..., :NARROW],) for (line,) in wide.samples(count)),
    )
    row = measured(narrow, tmp_path, least=10.0)
    assert row.nodes_cpu == []


def test_file_types_from_integers(tmp_path: Path) -> None:
    from models import REAL

    row = measured(REAL["magika"], tmp_path, least=40.0)
    on_cpu = {reason.split()[0] for reason in row.nodes_cpu}
    assert on_cpu == {"Reshape", "Equal", "Cast"}, "codes become rows of a unit matrix there"
