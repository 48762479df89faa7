"""Documents that must say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.cli.reference import pages

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"TW-\d{4}")


def test_every_error_code_has_a_row_and_every_row_a_code() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "csrc").rglob("*.[ch]")]
    used = {code for path in sources for code in CODE.findall(path.read_text("utf-8"))}
    rows = re.findall(r"^\| (TW-\d{4}) \|", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.M)
    first_table = {"TW-1000"}  # stands once more in the overview of classes
    assert sorted(set(rows)) == sorted(used)
    assert {code for code in rows if rows.count(code) > 1} <= first_table


@pytest.mark.parametrize("name", sorted(pages()))
def test_generated_pages_are_up_to_date(name: str) -> None:
    """`make docs` writes them."""
    assert (ROOT / name).read_text("utf-8") == pages()[name]()


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_documents_are_numbered_like_the_code_says() -> None:
    """Code speaks of sections of the arithmetic by number."""
    text = (ROOT / "docs" / "arithmetic.md").read_text("utf-8")
    sections = re.findall(r"^## (\d+)\. (.+)$", text, re.M)
    assert [int(n) for n, _ in sections] == list(range(1, 14))
