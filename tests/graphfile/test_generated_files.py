"""The committed header and page are what the declarations give today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.graph import constant
from tilewright.graphfile import c_header, reference
from tilewright.graphfile.format import RECORDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("csrc/src/generated/graphfile.h", c_header.header()),
        ("docs/graphfile.md", reference.page()),
    ],
)
def test_up_to_date(path, text):
    module = "c_header" if path.endswith(".h") else "reference"
    found = (ROOT / path).read_text()
    assert found == text, f"run python -m tilewright.graphfile.{module} > {path}"


@pytest.mark.parametrize("record", RECORDS)
def test_records_have_no_gaps_in_c(record):
    """Fields lie at multiples of their size, as C places them."""
    at = 0
    for wire in record.wires().values():
        size = wire.size // (wire.count or 1)
        assert at % size == 0
        at += wire.size
    largest = max(w.size // (w.count or 1) for w in record.wires().values())
    assert at % largest == 0


def test_names():
    assert c_header.snake("ConvTranspose") == "conv_transpose"
    assert c_header.snake("Table16") == "table16"


def test_rank_of_constants():
    assert c_header.constant_rank(constant("w", axes=("a", "b")).metadata["constant"]) == 2
    free = constant("c", axes=("stored axes of the sum",)).metadata["constant"]
    assert c_header.constant_rank(free) == -1
