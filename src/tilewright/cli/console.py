"""What people see: tables and sentences on stdout, progress and notes on stderr.

With --json one object goes to stdout and everything else to stderr.  Colours and progress bars
appear on a terminal only; NO_COLOR switches colours off.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

# Tables are not cut when they go to a file or another program.
PIPE_WIDTH = 200

Update = Callable[[str, int, int], None]
"""Called with what is being done, how many are done and how many there are (0: unknown)."""


def out() -> Console:
    return _console(sys.stdout)


def err() -> Console:
    return _console(sys.stderr)


def _console(stream: Any) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def emit(payload: Mapping[str, Any]) -> None:
    """The object of --json; numbers without a bound, which JSON does not have, are null."""
    text = json.dumps(_finite(payload), indent=2, ensure_ascii=False, default=str, allow_nan=False)
    sys.stdout.write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str) -> None:
    """A line on stdout, printed as it is."""
    out().print(text, markup=False)


def note(text: str) -> None:
    """A line on stderr."""
    err().print(text, markup=False)


def warn(text: str) -> None:
    """A warning: stderr, one line, stands out on a terminal."""
    err().print(f"warning: {text}", style="yellow", markup=False)


def warn_all(warnings: Iterable[tuple[str, str]]) -> None:
    """Warnings as (kind, text): the first of each kind, and how many more there are."""
    for text in _first_of_each(warnings):
        warn(text)


def note_all(notes: Iterable[tuple[str, str]]) -> None:
    """As `warn_all`, of notes."""
    for text in _first_of_each(notes):
        note(text)


def _first_of_each(texts: Iterable[tuple[str, str]]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for kind, text in texts:
        kinds.setdefault(kind, []).append(text)
    return [
        same[0] + (f" (and {len(same) - 1} more like it)" if len(same) > 1 else "")
        for same in kinds.values()
    ]


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[int] = ()
) -> None:
    """A plain table on stdout.

    Args:
        numbers: indices of right-aligned columns.
    """
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        grid.add_column(name, justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    console = out()
    if numbers:  # a number that is folded reads as another
        console.width = max(console.width, console.measure(grid, options=_wide(console)).maximum)
    console.print(grid)


def _wide(console: Console) -> ConsoleOptions:
    return console.options.update(width=PIPE_WIDTH)


@contextlib.contextmanager
def progress(*, quiet: bool = False) -> Iterator[Update]:
    """A bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield _ignore
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=err(),
        transient=True,
    )
    with bar:
        yield _Bars(bar)


def _ignore(_what: str, _done: int, _total: int) -> None:
    return None


class _Bars:
    """One line per thing that is being done; finished ones disappear."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self.tasks:
            for task in self.tasks.values():
                self.bar.remove_task(task)
            self.tasks = {what: self.bar.add_task(what, total=total or None, rate="")}
        task = self.tasks[what]
        speed = self.bar.tasks[-1].speed
        rate = f"{speed:.1f}/s" if speed and total > 1 else ""
        self.bar.update(task, completed=done, total=total or None, rate=rate)
