"""TOML text of plain mappings, deterministic: keys in the order given, floats in shortest form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


def toml_text(tree: Mapping[str, Any]) -> str:
    """The document: values of a table first, then its tables, then its arrays of tables."""
    return "\n".join(_toml_table(tree, ())).strip() + "\n"


def _toml_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    nested = {k: v for k, v in table.items() if isinstance(v, Mapping)}
    arrays = {k: v for k, v in table.items() if _is_array_of_tables(v)}
    for key, value in table.items():
        if key not in nested and key not in arrays:
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in nested.items():
        inner = (*path, key)
        if not value or any(not isinstance(v, Mapping) for v in value.values()):
            yield f"\n[{'.'.join(map(toml_key, inner))}]"
        yield from _toml_table(value, inner)
    for key, rows in arrays.items():
        inner = (*path, key)
        for row in rows:
            yield f"\n[[{'.'.join(map(toml_key, inner))}]]"
            yield from _toml_table(row, inner)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def toml_key(key: str) -> str:
    """A bare key where TOML allows one, else a quoted one."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def toml_value(value: Any) -> str:
    """A TOML literal of a bool, number, string or flat list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, float | int):
        return repr(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """JSON's escapes are TOML's, but for DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
