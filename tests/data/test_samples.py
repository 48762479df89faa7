"""Sources of samples: every kind, the same values whichever way they are packed, and bad input."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilewright.config import InputSpec
from tilewright.data import InputDescription, Sample, open_samples
from tilewright.errors import DataError

IMAGE = InputDescription("image", (1, 3, 8, 8), np.dtype(np.float32), InputSpec(mean=127, std=128))
TENSOR = InputDescription("x", (1, 5), np.dtype(np.float32), InputSpec())
IDS = InputDescription("ids", (1, 4), np.dtype(np.int64), InputSpec())

NAMES = ["a.png", "b.png", "c.png", "d.png"]


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)


def png(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels(seed)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "pictures"
    path.mkdir()
    for i, name in enumerate(NAMES):
        (path / name).write_bytes(png(i))
    (path / ".hidden.png").write_bytes(b"no")
    (path / "notes.md").write_text("not a sample")
    return path


def pack_tar(path: Path, mode: str, prefix: str = "") -> Path:
    with tarfile.open(path, mode) as tar:
        for i in reversed(range(len(NAMES))):  # member order is not the sorted order
            member = tarfile.TarInfo(prefix + NAMES[i])
            member.size = len(png(i))
            tar.addfile(member, io.BytesIO(png(i)))
    return path


def pack_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for i in reversed(range(len(NAMES))):
            archive.writestr(NAMES[i], png(i))
        archive.writestr("__MACOSX/._a.png", b"junk")
    return path


def values(samples: Any) -> np.ndarray:
    return np.stack([s.feeds["image"] for s in samples])


EXPECTED = np.stack(
    [((pixels(i).astype(np.float32) - 127) / 128).transpose(2, 0, 1)[None] for i in range(4)]
)


@pytest.mark.parametrize(
    "kind",
    [
        "folder",
        "tar",
        "tar.gz",
        "dotted.tar.gz",
        "tar.xz",
        "zip",
        "list",
        "npy",
        "npz",
        "npy-folder",
    ],
)
def test_every_source_of_pictures_gives_the_same_samples(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    stack = np.stack([pixels(i) for i in range(4)])
    if kind == "folder":
        source = folder
    elif kind.endswith(("tar", "tar.gz", "tar.xz")):
        mode = {"tar": "w", "gz": "w:gz", "xz": "w:xz"}[kind.rsplit(".", 1)[-1]]
        prefix = "./" if kind.startswith("dotted") else ""
        source = pack_tar(tmp_path / f"p.{kind}", mode, prefix)
    elif kind == "zip":
        source = pack_zip(tmp_path / "p.zip")
    elif kind == "list":
        source = tmp_path / "list.txt"
        source.write_text("# pictures\n\n" + "".join(f"pictures/{n} 7\n" for n in NAMES))
    elif kind == "npy":
        source = tmp_path / "p.npy"
        np.save(source, stack)
    elif kind == "npz":
        source = tmp_path / "p.npz"
        np.savez_compressed(source, x=stack)
    else:
        source = tmp_path / "arrays"
        source.mkdir()
        for i in range(4):
            np.save(source / f"{i}.npy", pixels(i))
    samples = open_samples(source, [IMAGE])
    assert len(samples) == 4
    read = list(samples)
    np.testing.assert_array_equal(values(read), EXPECTED)
    assert read[2].pixels is not None
    np.testing.assert_array_equal(read[2].pixels["image"], pixels(2))
    assert [s.name for s in read] == samples.names
    np.testing.assert_array_equal(values(samples), EXPECTED), "a second pass reads the same"
    limited = open_samples(source, [IMAGE], limit=2)
    np.testing.assert_array_equal(values(limited), EXPECTED[[0, 2]])
    assert limited.fingerprint() != samples.fingerprint()


def test_fingerprint_follows_content_not_place(folder: Path, tmp_path: Path) -> None:
    first = open_samples(folder, [IMAGE]).fingerprint()
    moved = folder.rename(tmp_path / "elsewhere")
    assert open_samples(moved, [IMAGE]).fingerprint() == first
    (moved / "b.png").write_bytes(png(9))
    assert open_samples(moved, [IMAGE]).fingerprint() != first


def test_float_arrays_of_the_input_shape_are_normalised_as_declared(tmp_path: Path) -> None:
    raw = np.stack([pixels(i).transpose(2, 0, 1) for i in range(4)]).astype(np.float32)
    np.save(tmp_path / "x.npy", raw)
    samples = list(open_samples(tmp_path / "x.npy", [IMAGE]))
    np.testing.assert_array_equal(values(samples), EXPECTED)
    assert samples[0].pixels is None


def test_one_array_of_the_input_shape_is_one_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5, dtype=np.float32))
    (sample,) = open_samples(tmp_path / "x.npy", [TENSOR])
    np.testing.assert_array_equal(sample.feeds["x"], [[0, 1, 2, 3, 4]])


def test_bin_file_and_folder_of_bin_files(tmp_path: Path) -> None:
    data = np.arange(15, dtype="<f4").reshape(3, 1, 5)
    (tmp_path / "all.bin").write_bytes(data.tobytes())
    many = tmp_path / "many"
    many.mkdir()
    for i in range(3):
        (many / f"{i}.bin").write_bytes(data[i].tobytes())
    for source in (tmp_path / "all.bin", many):
        read = np.stack([s.feeds["x"] for s in open_samples(source, [TENSOR])])
        np.testing.assert_array_equal(read, data)


def test_several_inputs_by_npz_and_by_list(tmp_path: Path) -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    ids = np.arange(8).reshape(2, 4)
    np.savez(tmp_path / "all.npz", x=x, ids=ids)
    lines = []
    for i in range(2):
        np.save(tmp_path / f"x{i}.npy", x[i])
        np.save(tmp_path / f"i{i}.npy", ids[i])
        lines.append(f"x{i}.npy i{i}.npy")
    (tmp_path / "list.txt").write_text("\n".join(lines))
    for source in ("all.npz", "list.txt"):
        samples = list(open_samples(tmp_path / source, [TENSOR, IDS]))
        for i, sample in enumerate(samples):
            np.testing.assert_array_equal(sample.feeds["x"][0], x[i])
            np.testing.assert_array_equal(sample.feeds["ids"][0], ids[i])
            assert sample.feeds["ids"].dtype == np.int64


def test_noise_is_seeded_and_marked_as_meaningless() -> None:
    def draw(text: str, seed: int = 0) -> list[Sample]:
        return list(open_samples(text, [IMAGE, TENSOR, IDS], seed=seed))

    four, eight = draw("random:4"), draw("random:8")
    assert open_samples("random:4", [IMAGE]).meaningless
    for a, b in zip(four, eight, strict=False):
        for name in a.feeds:
            np.testing.assert_array_equal(a.feeds[name], b.feeds[name])
    assert not np.array_equal(draw("random:1", 1)[0].feeds["x"], four[0].feeds["x"])
    assert four[0].feeds["ids"].dtype == np.int64


def save(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def test_missing_and_empty_sources(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(DataError, match="no sample data at"):
        open_samples(tmp_path / "nowhere", [IMAGE])
    for name, words in (
        ("empty", "has no pictures"),
        ("empty.tar", "has no"),
        ("empty.txt", "no samples"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            open_samples(tmp_path / name, [IMAGE])
        assert caught.value.code == "TW-1202"
    with pytest.raises(DataError, match="how many"):
        open_samples("random:many", [IMAGE])


@pytest.mark.parametrize("name", ["bad.tar", "bad.tar.gz", "bad.zip", "bad.npz", "bad.npy"])
def test_unreadable_containers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"this is not what the name says" * 50)
    with pytest.raises(DataError, match=r"not a readable") as caught:
        open_samples(tmp_path / name, [IMAGE])
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_truncated_archives(tmp_path: Path) -> None:
    for name, mode in (("t.tar", "w"), ("t.tar.gz", "w:gz")):
        path = pack_tar(tmp_path / name, mode)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 3])
        with pytest.raises(DataError, match="not a readable"):
            list(open_samples(path, [IMAGE]))


def test_unreadable_picture_names_its_path_in_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sub/a.jpg", b"not a picture")
    with pytest.raises(DataError, match=r"p\.zip/sub/a\.jpg: not a readable picture"):
        list(open_samples(path, [IMAGE]))


@pytest.mark.parametrize(
    ("array", "description", "words"),
    [
        (np.zeros((2, 8, 8, 4), np.uint8), IMAGE, "have 3 channels, this has 4"),
        (np.zeros((2, 3, 9, 8), np.float32), IMAGE, r"\[3, 9, 8\].*\[1, 3, 8, 8\]"),
        (np.zeros((2, 6), np.float32), TENSOR, r"float32 \[6\].*float32 \[1, 5\]"),
        (np.zeros((2, 4), np.float32), IDS, r"float32 \[1, 4\].*int64 \[1, 4\]"),
        (np.array([[1, 2, np.nan, 4, 5]]), TENSOR, "1 of 5 values.*NaN or infinite"),
        (np.array([[1, 2, 1e300, 4, 5]]), TENSOR, "1 of 5 values.*NaN or infinite"),
        (np.array([["a"] * 5]), TENSOR, "takes float32"),
        (np.asfortranarray(np.zeros((3, 5))), TENSOR, "Fortran"),
        (np.zeros((0, 5), np.float32), TENSOR, "no samples"),
    ],
)
def test_arrays_that_do_not_fit(
    array: np.ndarray, description: InputDescription, words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        list(open_samples(save(tmp_path / "x.npy", array), [description]))


def test_grey_pictures_are_spread_to_rgb_and_16_bit_ones_refused(tmp_path: Path) -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    Image.fromarray(grey).save(tmp_path / "g.png")
    (sample,) = open_samples(tmp_path / "g.png", [IMAGE])
    assert sample.pixels is not None
    np.testing.assert_array_equal(sample.pixels["image"], np.repeat(grey[:, :, None], 3, 2))
    Image.fromarray(grey.astype(np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(DataError, match="more than 8 bits"):
        list(open_samples(tmp_path / "deep.png", [IMAGE]))


def test_lists_name_the_line_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\nmissing.png\n")
    with pytest.raises(DataError, match=r"list\.txt:2: there is no file 'missing\.png'"):
        open_samples(tmp_path / "list.txt", [IMAGE])
    with pytest.raises(DataError, match="1 columns, and the model has 2 inputs"):
        open_samples(tmp_path / "list.txt", [TENSOR, IDS])


def test_several_inputs_need_a_source_with_columns(folder: Path) -> None:
    with pytest.raises(DataError, match="column per input"):
        open_samples(folder, [IMAGE, TENSOR])


def test_a_folder_with_a_space_in_a_listed_path(tmp_path: Path) -> None:
    (tmp_path / "my picture.png").write_bytes(png(1))
    (tmp_path / "list.txt").write_text("my picture.png\n")
    assert open_samples(tmp_path / "list.txt", [IMAGE]).names == ["my picture.png"]


def test_bin_of_the_wrong_size(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0" * 21)
    with pytest.raises(DataError, match="21 bytes are not whole samples of 20 bytes"):
        open_samples(tmp_path / "x.bin", [TENSOR])
