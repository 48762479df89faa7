"""Class names and labels of samples, from files."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tilewright.errors import DataError

IMAGENET_CLASSES = 1000


def class_names(count: int, path: Path | None) -> list[str] | None:
    """Names of the classes.

    Args:
        count: classes of the model.
        path: text with one name a line, or a JSON list; None takes ImageNet's names for 1000
            classes where they have been fetched.

    Returns:
        None when no names are known.

    Raises:
        DataError: an unreadable file, or another number of names.
    """
    if path is None:
        return _imagenet() if count == IMAGENET_CLASSES else None
    text = _text(path)
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(text)
        except ValueError as error:
            raise DataError(f"labels {str(path)!r}: {error}", code="TW-1250") from error
        names = [str(v) for v in (content.values() if isinstance(content, dict) else content)]
    else:
        names = text.splitlines()
    if len(names) != count:
        raise DataError(
            f"labels {str(path)!r} has {len(names)} names, and the model has {count} classes",
            fix="give one name a line, in class order",
            code="TW-1250",
        )
    return names


def _imagenet() -> list[str] | None:
    from tilewright.assets import asset_path

    try:
        path = asset_path("imagenet-names")
    except DataError:
        return None
    return [str(name) for name in json.loads(path.read_text("utf-8"))]


def sample_labels(path: Path, samples: Sequence[str]) -> list[int]:
    """The class of every sample.

    Args:
        path: CSV with a column of sample names and a last column of class numbers, or one number a
            line in sample order.  Names match by whole path, else by file name.

    Raises:
        DataError: an unreadable file, or a sample without a class.
    """
    rows = [row for row in csv.reader(_text(path).splitlines()) if row]
    if rows and not rows[0][-1].strip().lstrip("-").isdigit():
        rows = rows[1:]
    try:
        numbers = [int(row[-1]) for row in rows]
    except ValueError as error:
        raise DataError(
            f"labels {str(path)!r}: {error}",
            fix="end each line with a class number",
            code="TW-1251",
        ) from error
    if all(len(row) == 1 for row in rows):
        if len(numbers) != len(samples):
            raise DataError(
                f"labels {str(path)!r} has {len(numbers)} lines for {len(samples)} samples",
                fix="give one line a sample, or a CSV with names",
                code="TW-1251",
            )
        return numbers
    whole = {row[0]: number for row, number in zip(rows, numbers, strict=True)}
    short = {PurePosixPath(name).name: number for name, number in whole.items()}
    labels = []
    for name in samples:
        number = whole.get(name, short.get(PurePosixPath(name).name))
        if number is None:
            raise DataError(
                f"labels {str(path)!r} has no class for sample {name!r}",
                fix="add it, or leave the sample out",
                code="TW-1251",
            )
        labels.append(number)
    return labels


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise DataError(f"labels {str(path)!r} cannot be read: {reason}", code="TW-1250") from error
