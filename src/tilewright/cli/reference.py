"""Pages that are printed from the code: `python -m tilewright.cli.reference [ROOT]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def pages() -> dict[str, Callable[[], str]]:
    """Path of a page from the root of the repository -> what prints it."""
    return {
        "SUPPORTED_OPS.md": _operators,
        "docs/cli.md": command_line_page,
        "docs/isa.md": _instructions,
    }


def _operators() -> str:
    from tilewright.listing import operators_page

    return operators_page()


def _instructions() -> str:
    from tilewright.program.reference_page import reference_page

    return reference_page()


def command_line_page() -> str:
    """docs/cli.md, from the verbs' own declarations."""
    import typer

    from tilewright.cli.app import app

    group: Any = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Every verb takes `--json` (one object on stdout, everything else on stderr) and `--help`.",
        "Exit codes: 0 done, 1 an error ([errors.md](errors.md)), 2 wrong usage, 130 interrupted.",
        "Colours and progress bars appear on a terminal only; `NO_COLOR` switches colours off.",
        "`tilewright --debug VERB` shows the traceback of an error.",
    ]
    for name, command in group.commands.items():
        lines += ["", f"## {name}", "", *_prose(command.help or "")]
        rows = [row for row in map(_row, command.params) if row is not None]
        if rows:
            lines += ["", "| argument | default | meaning |", "| --- | --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _prose(text: str) -> Iterator[str]:
    """Paragraphs on one line each; the example as code."""
    for index, paragraph in enumerate(text.strip().split("\n\n")):
        if index:
            yield ""
        words = " ".join(paragraph.split())
        if words.startswith("Example: "):
            yield f"    {words.removeprefix('Example: ')}"
        else:
            yield words


def _row(parameter: Any) -> str | None:
    if parameter.name in ("json", "help"):
        return None
    names = [*parameter.opts, *parameter.secondary_opts]
    is_option = any(n.startswith("-") for n in names)
    shown = ", ".join(f"`{n}`" for n in names) if is_option else f"`{parameter.name.upper()}`"
    default = parameter.default
    has_default = default is not None and default != () and not callable(default)
    value = f"`{default}`" if has_default and default is not False else ""
    meaning = (parameter.help or "").replace("|", "\\|")
    return f"| {shown} | {value} | {meaning} |"


def main() -> int:
    """Write every page below the given folder."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, page in pages().items():
        (root / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
