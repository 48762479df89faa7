"""Sets of samples: open a source by its name, stream its samples preprocessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.data.preprocess import U8, Array, InputDescription
from tilewright.data.sources.archive import ARCHIVE_SUFFIXES, ArchiveSource
from tilewright.data.sources.arrays import NpySource, NpzSource
from tilewright.data.sources.base import Source
from tilewright.data.sources.folder import FolderSource
from tilewright.data.sources.list_file import ListSource
from tilewright.data.sources.noise import NoiseSource
from tilewright.data.sources.picture import PictureSource
from tilewright.data.sources.raw import RawSource
from tilewright.data.values import PICTURE_SUFFIXES, feed
from tilewright.errors import DataError

MEANINGLESS = "samples are random noise: accuracy figures mean nothing"


@dataclass(frozen=True)
class Sample:
    """One sample, ready for the model.

    Attributes:
        name: unique within the set, stable.
        feeds: model input by name, of the input's shape and type.
        pixels: for each input fed by a picture, the picture at the model's size: u8 [H, W, 3] RGB
            (also for BGR models), or [H, W, 1] for GRAY; what built-in preprocessing takes.
            None when no input is fed by a picture.
    """

    name: str
    feeds: dict[str, Array]
    pixels: dict[str, U8] | None


@dataclass(frozen=True)
class SampleSet:
    """Samples of one source, streamed; each iteration reads the source again."""

    source: Source
    inputs: tuple[InputDescription, ...]
    indices: tuple[int, ...]
    meaningless: bool = False

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        values = self.source.read(self.indices)
        for index, columns in zip(self.indices, values, strict=True):
            name = self.source.names[index]
            feeds: dict[str, Array] = {}
            pixels: dict[str, U8] = {}
            for description in self.inputs:
                value = columns[description.name]
                feeds[description.name], picture = feed(value, description, name)
                if picture is not None:
                    pixels[description.name] = picture
            yield Sample(name, feeds, pixels or None)

    @property
    def names(self) -> list[str]:
        """Names of the samples in order."""
        return [self.source.names[i] for i in self.indices]

    def fingerprint(self) -> str:
        """Hex digest of the samples' names and bytes; independent of where the data lies."""
        return self.source.fingerprint(self.indices)

    def limited(self, limit: int) -> SampleSet:
        """At most `limit` samples, spread evenly over the set."""
        kept = tuple(self.indices[i] for i in spread(len(self), limit))
        return SampleSet(self.source, self.inputs, kept, self.meaningless)


def open_samples(
    source: str | Path,
    inputs: Sequence[InputDescription],
    *,
    limit: int | None = None,
    seed: int = 0,
) -> SampleSet:
    """Open a set of samples.

    Args:
        source: folder, archive, list file, .npy, .npz, .bin, one picture, or `random:N`.
        inputs: the model's inputs; each sample feeds all of them.
        limit: at most so many samples, spread evenly over the source.
        seed: of `random:N`.

    Raises:
        DataError: missing, empty or unreadable source, or one that cannot feed the inputs.
    """
    text = str(source)
    noise = re.fullmatch(r"random:(\d+)", text)
    if noise is not None or text.startswith("random:"):
        if noise is None or int(noise[1]) == 0:
            raise DataError(
                f"{text!r} does not say how many samples", fix="write random:32", code="TW-1208"
            )
        opened: Source = NoiseSource(int(noise[1]), seed, inputs)
    else:
        opened = _open_path(Path(text), inputs)
    count = len(opened.names)
    indices = range(count) if limit is None else spread(count, limit)
    return SampleSet(opened, tuple(inputs), tuple(indices), meaningless=noise is not None)


def spread(count: int, limit: int) -> list[int]:
    """`limit` increasing indices below `count`, evenly spaced from the first on."""
    if limit >= count:
        return list(range(count))
    return [i * count // limit for i in range(limit)]


def _open_path(path: Path, inputs: Sequence[InputDescription]) -> Source:
    if path.is_dir():
        return FolderSource(path, inputs)
    if not path.exists():
        raise DataError(
            f"there is no sample data at {str(path)!r}",
            fix="give a folder, archive, list file or array, or random:32",
            code="TW-1201",
        )
    if path.name.lower().endswith(ARCHIVE_SUFFIXES):
        return ArchiveSource(path, inputs)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return NpySource(path, inputs)
    if suffix == ".npz":
        return NpzSource(path, inputs)
    if suffix == ".bin":
        return RawSource(path, inputs)
    if suffix in (".txt", ".lst"):
        return ListSource(path, inputs)
    if suffix in PICTURE_SUFFIXES:
        return PictureSource(path, inputs)
    raise DataError(
        f"{str(path)!r} is not a kind of sample data that is read",
        fix="give a folder, .tar, .tar.gz, .zip, .txt, .npy, .npz, .bin or a picture",
        code="TW-1208",
    )
