"""The table of assets: which file of which pinned package lands where."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Literal

from tilewright.errors import DataError, nearest

GROUPS = ("demo", "tests", "benchmarks", "transformers")
"""`transformers`: networks with attention, normalisation or recurrence, and what feeds them."""


@dataclass(frozen=True)
class Package:
    """A pinned package; `source` takes PyPI's source archive instead of the wheel."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str
    source: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Asset:
    """One file, or the files that match a pattern, inside one package.

    Attributes:
        member: path inside the package's archive; holds `*` for a set.
        target: path below the cache; ends in '/' for a set.
        sha256: of the file; of a set's listing, see :func:`assets.digest.tree_digest`.
        size: bytes, all files together.
        count: number of files.
        within: .zip inside the package's archive that holds the member.
    """

    name: str
    kind: str
    package: Package
    member: str
    target: str
    sha256: str
    size: int
    licence: str
    groups: tuple[str, ...]
    count: int = 1
    within: str = ""

    @property
    def is_set(self) -> bool:
        return self.target.endswith("/")


@dataclass(frozen=True)
class Derived:
    """A file that a builder of ours makes from a fetched asset; `variant` is the builder's own."""

    name: str
    kind: str
    source: str
    target: str
    builder: str
    licence: str
    groups: tuple[str, ...]
    variant: str = ""


Entry = Asset | Derived
Table = dict[str, Entry]


def read_table(text: str) -> Table:
    """Parse a table; the order of the file is kept, sources of derived files come first."""
    raw = tomllib.loads(text)
    packages = {key: Package(**value) for key, value in raw["package"].items()}
    table: Table = {}
    for row in raw["asset"]:
        entry: Entry = Asset(**_plain(row) | {"package": packages[row["package"]]})
        table[entry.name] = entry
    for row in raw.get("derived", ()):
        entry = Derived(**_plain(row))
        if entry.source not in table:
            raise ValueError(f"{entry.name}: no asset is called {entry.source!r}")
        table[entry.name] = entry
    for entry in table.values():
        _check_target(entry.target)
    return table


def own_table() -> Table:
    """The table that ships with Tilewright."""
    return read_table(resources.files(__package__).joinpath("assets.toml").read_text("utf-8"))


def select(table: Table, names: str | Sequence[str]) -> list[Entry]:
    """Entries by name, or by the name of a group; sources of derived entries are added.

    Raises:
        DataError: an unknown name.
    """
    chosen: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        members = {e.name for e in table.values() if name in e.groups}
        if name not in table and not members:
            raise DataError(
                f"no asset or group is called {name!r}",
                fix=nearest(name, [*table, *GROUPS]),
                code="TW-1220",
            )
        chosen |= members or {name}
    chosen |= {e.source for e in table.values() if isinstance(e, Derived) and e.name in chosen}
    return [entry for name, entry in table.items() if name in chosen]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "groups": tuple(row["groups"])}


def _check_target(target: str) -> None:
    path = PurePosixPath(target)
    if path.is_absolute() or ".." in path.parts or "\\" in target:
        raise ValueError(f"{target!r} is not a path below the cache")
