"""Where fetched assets lie."""

from __future__ import annotations

import os
from pathlib import Path

from tilewright.assets.table import own_table
from tilewright.errors import DataError, nearest


def cache_directory() -> Path:
    """`$TILEWRIGHT_ASSETS`, else `$TILEWRIGHT_CACHE/assets`, else `~/.cache/tilewright/assets`."""
    assets = os.environ.get("TILEWRIGHT_ASSETS")
    if assets:
        return Path(assets)
    cache = os.environ.get("TILEWRIGHT_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache" / "tilewright") / "assets"


def asset_path(name: str, cache: Path | None = None) -> Path:
    """The file or folder of a fetched asset.

    Raises:
        DataError: an unknown name, or an asset that has not been fetched.
    """
    table = own_table()
    if name not in table:
        raise DataError(f"no asset is called {name!r}", fix=nearest(name, table), code="TW-1220")
    path = (cache or cache_directory()) / table[name].target
    if not path.exists():
        raise DataError(
            f"asset {name!r} is not in the cache",
            fix=f"run `tilewright fetch {name}`",
            code="TW-1221",
        )
    return path
