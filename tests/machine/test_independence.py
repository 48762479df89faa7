"""The machine's formulas are its own: it may not borrow the reference executor's."""

from __future__ import annotations

import ast
from pathlib import Path

import tilewright.machine

FOREIGN = ("tilewright.numerics", "tilewright.ops", "tilewright.reference", "tilewright.compiler")


def test_machine_imports_no_foreign_formula():
    folder = Path(tilewright.machine.__file__).parent
    modules = sorted(folder.glob("*.py"))
    assert len(modules) > 10
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if n.startswith(FOREIGN)], path.name
