"""Fetching with a stub in place of the registry's client: checks, atomicity, what is left alone."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.assets import asset_path, cache_directory, fetch, own_table, select
from tilewright.assets.digest import state_of, tree_digest
from tilewright.assets.download import download
from tilewright.assets.fetch import BUILDERS
from tilewright.assets.table import GROUPS, Asset, Derived, Package, Table, read_table
from tilewright.errors import DataError, EnvironmentFault, TilewrightError

FILES = {"pkg/model.onnx": b"model", "pkg/img/a.png": b"a", "pkg/img/b.png": b"b"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_table(model_sha: str = sha(b"model"), registry: str = "pypi") -> Table:
    tree = tree_digest({"a.png": sha(b"a"), "b.png": sha(b"b")})
    return read_table(
        f"""
        [package.p]
        registry = "{registry}"
        name = "some-package"
        version = "1.0"
        [[asset]]
        name = "model"
        kind = "model"
        package = "p"
        member = "pkg/model.onnx"
        target = "models/model.onnx"
        sha256 = "{model_sha}"
        size = 5
        licence = "MIT"
        groups = ["tests"]
        [[asset]]
        name = "images"
        kind = "images"
        package = "p"
        member = "pkg/img/*.png"
        target = "images/set/"
        sha256 = "{tree}"
        size = 2
        count = 2
        licence = "MIT"
        groups = ["benchmarks"]
        """
    )


class Stub:
    """A registry that serves one wheel or source archive, and counts how often."""

    def __init__(self, files: dict[str, bytes] = FILES, suffix: str = ".whl") -> None:
        self.files, self.suffix, self.calls = files, suffix, 0

    def __call__(self, package: Package, folder: Path) -> Path:
        self.calls += 1
        path = folder / f"archive{self.suffix}"
        if self.suffix == ".whl":
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in self.files.items():
                    archive.writestr(name, data)
        else:
            with tarfile.open(path, "w:gz") as tar:
                for name, data in self.files.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        return path


def leftovers(cache: Path) -> list[Path]:
    return list(cache.rglob(".*"))


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_files_and_sets_land_checked(suffix: str, tmp_path: Path) -> None:
    stub, events = Stub(suffix=suffix), []

    def note(entry: Any, event: str, detail: str) -> None:
        events.append((entry.name, event))

    paths = fetch(["model", "images"], tmp_path, note, table=make_table(), downloader=stub)
    assert [p.name for p in paths] == ["model.onnx", "set"]
    assert paths[0].read_bytes() == b"model"
    assert sorted(p.name for p in paths[1].iterdir()) == ["a.png", "b.png"]
    assert stub.calls == 1, "one download serves every asset of a package"
    assert ("model", "fetched") in events and ("images", "fetched") in events
    assert not leftovers(tmp_path)
    fetch(["model", "images"], tmp_path, table=make_table(), downloader=stub)
    assert stub.calls == 1, "what is intact is left alone"


def test_damaged_files_are_fetched_again(tmp_path: Path) -> None:
    stub = Stub()
    model, images = fetch(["model", "images"], tmp_path, table=make_table(), downloader=stub)
    model.write_bytes(b"damaged")
    (images / "a.png").write_bytes(b"damaged")
    fetch(["model", "images"], tmp_path, table=make_table(), downloader=stub)
    assert model.read_bytes() == b"model" and (images / "a.png").read_bytes() == b"a"
    assert not leftovers(tmp_path)


def test_wrong_bytes_never_reach_the_final_name(tmp_path: Path) -> None:
    table = make_table(model_sha=sha(b"something else"))
    with pytest.raises(EnvironmentFault, match=r"cannot fetch 'model'.*expected"):
        fetch("model", tmp_path, table=table, downloader=Stub())
    assert not (tmp_path / "models" / "model.onnx").exists() and not leftovers(tmp_path)


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    table = make_table(model_sha=sha(b"something else"))
    with pytest.raises(EnvironmentFault):
        fetch(["model", "images"], tmp_path, table=table, downloader=Stub())
    assert (tmp_path / "images" / "set" / "a.png").exists()


def nested(files: dict[str, bytes]) -> bytes:
    """A zip file's bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_members_of_an_archive_within_the_package(suffix: str, tmp_path: Path) -> None:
    table = make_table()
    model = table["model"]
    assert isinstance(model, Asset)
    table["model"] = replace(model, member="model.onnx", within="pkg/all.zip")
    stub = Stub({"pkg/all.zip": nested({"model.onnx": b"model"})}, suffix)
    (path,) = fetch("model", tmp_path, table=table, downloader=stub)
    assert path.read_bytes() == b"model" and not leftovers(tmp_path)
    path.unlink()
    for files, reason in (
        ({}, "some-package 1.0 has no pkg/all.zip"),
        ({"pkg/all.zip": b"no zip"}, "not a zip file"),
        ({"pkg/all.zip": nested({})}, "matches 0 files"),
    ):
        with pytest.raises(EnvironmentFault, match=reason):
            fetch("model", tmp_path, table=table, downloader=Stub(files, suffix))
    assert not path.exists() and not leftovers(tmp_path)


@pytest.mark.parametrize("files", [{}, {"pkg/img/a.png": b"a"}])
def test_missing_members(files: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="matches"):
        fetch("images", tmp_path, table=make_table(), downloader=Stub(files))


def test_broken_archive_and_failing_client(tmp_path: Path) -> None:
    def broken(package: Package, folder: Path) -> Path:
        (folder / "x.whl").write_bytes(b"no zip")
        return folder / "x.whl"

    with pytest.raises(EnvironmentFault, match="cannot fetch 'model'"):
        fetch("model", tmp_path, table=make_table(), downloader=broken)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(DataError, match="did you mean 'efficientnet-lite0'"):
        select(own_table(), "eficientnet-lite0")
    with pytest.raises(DataError, match="did you mean 'ultraface-rfb-320'"):
        asset_path("ultraface-rfb-32")


def test_targets_stay_below_the_cache() -> None:
    table = make_table()
    assert isinstance(table["model"], Asset)
    for target in ("/etc/x", "../x", "a\\b"):
        text = f'[package]\n[[asset]]\nname="x"\ntarget={target!r}\npackage="p"'
        with pytest.raises((ValueError, KeyError, TypeError)):
            read_table(text)


def test_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_ASSETS", raising=False)
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    assert cache_directory() == Path.home() / ".cache" / "tilewright" / "assets"
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/c")
    assert cache_directory() == Path("/c/assets")
    monkeypatch.setenv("TILEWRIGHT_ASSETS", "/a")
    assert cache_directory() == Path("/a")


def test_an_asset_that_is_not_there_tells_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_ASSETS", str(tmp_path))
    with pytest.raises(DataError, match="run `tilewright fetch open-nsfw`"):
        asset_path("open-nsfw")


def test_own_table_is_complete() -> None:
    table = own_table()
    for name in ("efficientnet-lite0", "ddddocr-det", "ultraface-rfb-320", "imagenet-names"):
        assert name in table
    transformers = {e.name for e in select(table, "transformers")}
    assert {"minilm-l6", "minilm-tokenizer", "vit-s-focus", "verses-asv"} <= transformers
    assert not transformers & {e.name for e in select(table, "demo")}
    assert {e.name for e in select(table, "demo")} >= {"efficientnet-lite0", "photo-chelsea"}
    tests = [e for e in select(table, "tests") if isinstance(e, Asset)]
    assert all(e.package.registry == "pypi" for e in tests), "tests must not need npm"
    targets = [e.target for e in table.values()]
    assert len(targets) == len(set(targets))
    for entry in table.values():
        assert entry.groups and entry.licence and set(entry.groups) <= set(GROUPS)
        assert not isinstance(entry, Derived) or entry.builder in BUILDERS
        if isinstance(entry, Asset):
            assert len(entry.sha256) == 64 and entry.is_set == ("*" in entry.member)


def test_npm_assets_without_npm_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="npm is not on the PATH; install npm"):
        download(Package("npm", "some-package", "1.0"), tmp_path)


def test_a_failing_client_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'WARNING: x' >&2\necho 'ERROR: no such version' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(pip))
    with pytest.raises(TilewrightError) as caught:
        download(Package("pypi", "some-package", "1.0"), tmp_path)
    assert "some-package 1.0 could not be downloaded: ERROR: no such version" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_state_of_a_missing_file(tmp_path: Path) -> None:
    assert state_of(make_table()["model"], tmp_path) == "missing"
    assert state_of(make_table()["images"], tmp_path) == "missing"
