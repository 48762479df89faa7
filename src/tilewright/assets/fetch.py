"""Putting assets in place: what is missing is downloaded, checked and moved in atomically."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from tilewright.assets import efficientnet, minilm
from tilewright.assets.archive import BROKEN, extract, open_archive
from tilewright.assets.cache import cache_directory
from tilewright.assets.digest import state_of
from tilewright.assets.download import Downloader, download
from tilewright.assets.table import Asset, Derived, Entry, Package, Table, own_table, select
from tilewright.errors import EnvironmentFault, TilewrightError

Event = Literal["present", "downloading", "fetched", "built", "failed"]
Progress = Callable[[Entry, Event, str], None]

STALE_SECONDS = 24 * 3600

BUILDERS: dict[str, Callable[[Path, Path, str], None]] = {
    "efficientnet": efficientnet.convert,
    "efficientnet-batchnorm": partial(efficientnet.convert, fold_batchnorm=False),
    "minilm": minilm.convert,
}
"""Of derived files: weights, model to write, variant."""


def fetch(
    names: str | Sequence[str],
    cache: Path | None = None,
    progress: Progress | None = None,
    *,
    table: Table | None = None,
    downloader: Downloader = download,
) -> list[Path]:
    """Fetch assets by name or group; what is there and intact is left alone.

    Args:
        names: one or more names of assets or groups (see `GROUPS`).
        cache: folder to fill; default: :func:`cache_directory`.
        progress: told of each asset: (entry, event, detail).
        table: another table than Tilewright's own.
        downloader: fetches one package into an empty folder.

    Returns:
        The path of every asset asked for, sources of derived files left out.

    Raises:
        DataError: an unknown name.
        EnvironmentFault: some assets could not be put in place; the others are.
    """
    table = own_table() if table is None else table
    root = cache or cache_directory()
    entries = select(table, names)
    run = _Run(root, progress or (lambda *_: None), downloader)
    _sweep(root)
    for package, assets in _missing(entries, run).items():
        run.take_package(package, assets)
    for entry in entries:
        if isinstance(entry, Derived):
            run.build(entry, table)
    if run.failures:
        name, reason = next(iter(run.failures.items()))
        more = f" (and {len(run.failures) - 1} more)" if len(run.failures) > 1 else ""
        raise EnvironmentFault(f"cannot fetch {name!r}{more}: {reason}", code="TW-5010")
    implied = {e.source for e in entries if isinstance(e, Derived)}
    return [root / e.target for e in entries if e.name not in implied or e.name in names]


class _Run:
    """One call of fetch: where to, whom to tell, what failed."""

    def __init__(self, root: Path, progress: Progress, downloader: Downloader) -> None:
        self.root, self.progress, self.downloader = root, progress, downloader
        self.failures: dict[str, str] = {}

    def take_package(self, package: Package, assets: list[Asset]) -> None:
        """Download one package and take all wanted assets out of it."""
        for asset in assets:
            self.progress(asset, "downloading", str(package))
        self.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=self.root) as scratch:
            try:
                with open_archive(self.downloader(package, Path(scratch))) as archive:
                    for asset in assets:
                        self._attempt(asset, partial(extract, asset, archive, self.root))
            except (TilewrightError, OSError, *BROKEN) as error:
                for asset in assets:
                    self._failed(asset, error)

    def build(self, entry: Derived, table: Table) -> None:
        """Make a derived file from its source."""
        if state_of(entry, self.root) == "ok":
            self.progress(entry, "present", "")
        elif entry.source in self.failures:
            self._failed(entry, EnvironmentFault(f"{entry.source} could not be fetched"))
        else:
            source = self.root / table[entry.source].target
            self._attempt(entry, partial(_build, entry, source, self.root / entry.target))

    def _attempt(self, entry: Entry, work: Callable[[], object]) -> None:
        try:
            work()
        except (TilewrightError, OSError, *BROKEN) as error:
            self._failed(entry, error)
        else:
            self.progress(entry, "built" if isinstance(entry, Derived) else "fetched", "")

    def _failed(self, entry: Entry, error: Exception) -> None:
        self.failures.setdefault(entry.name, str(error))
        self.progress(entry, "failed", str(error))


def _missing(entries: Sequence[Entry], run: _Run) -> dict[Package, list[Asset]]:
    wanted: dict[Package, list[Asset]] = {}
    for entry in entries:
        if isinstance(entry, Derived):
            continue
        if state_of(entry, run.root) == "ok":
            run.progress(entry, "present", "")
        else:
            wanted.setdefault(entry.package, []).append(entry)
    return wanted


def _build(entry: Derived, source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    BUILDERS[entry.builder](source, target, entry.variant)


def _sweep(root: Path) -> None:
    """Remove scratch folders that a killed run left behind long ago."""
    for pattern in (".download-*", "*/.part-*", "*/*/.part-*"):
        for path in root.glob(pattern):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
