"""The same verses in two English translations, from packages that carry them."""

from __future__ import annotations

import ast
from functools import cache

from tilewright.assets.cache import asset_path


@cache
def verses(translation: str) -> dict[int, str]:
    """Number of each verse (book, chapter and verse as digits) -> text.

    The package's module is read as data: its one assignment calls a class with the text of the
    whole book and with the place where each verse starts.

    Args:
        translation: asv or bbe.
    """
    source = asset_path(f"verses-{translation}").read_text(encoding="utf-8")
    assignment = next(s for s in ast.parse(source).body if isinstance(s, ast.Assign))
    assert isinstance(assignment.value, ast.Call)
    text: str = ast.literal_eval(assignment.value.args[1])
    starts: dict[int, int | None] = ast.literal_eval(assignment.value.args[2])
    places = sorted((start, key) for key, start in starts.items() if start is not None)
    ends = [start for start, _ in places[1:]] + [len(text)]
    return {key: text[start:end].strip() for (start, key), end in zip(places, ends, strict=True)}
