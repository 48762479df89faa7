"""Calibration as a file: an .npz archive without pickled objects, the same bytes every time.

Tensor names may hold anything, so they stand in a JSON header; arrays are numbered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tilewright.errors import QuantizationError
from tilewright.quantize.calibrate import Calibration
from tilewright.quantize.observers import Histogram, TensorStatistics
from tilewright.quantize.sessions import Array


def save_calibration(found: Calibration, path: Path) -> None:
    """Write the statistics; `path` ends in .npz."""
    statistics = list(found.statistics.values())
    histograms = {n: s.histogram for n, s in found.statistics.items() if s.histogram is not None}
    header = {
        "samples": found.samples,
        "values": list(found.statistics),
        "histograms": {n: [h.low, h.high] for n, h in histograms.items()},
        "means": list(found.means),
        "pre_activations": {n: len(rows) for n, rows in found.pre_activations.items()},
        "channel_tops": list(found.channel_tops),
        "smoothing": list(found.smoothing),
    }
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "lows": np.stack([s.lows for s in statistics], axis=1),
        "highs": np.stack([s.highs for s in statistics], axis=1),
        **_numbered("counts", [h.counts for h in histograms.values()]),
        **_numbered("mean", list(found.means.values())),
        **_numbered("top", list(found.channel_tops.values())),
        **_numbered("factor", list(found.smoothing.values())),
        **_numbered("output", [a for rows in found.pre_activations.values() for a in rows]),
    }
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def _numbered(kind: str, arrays: list[Array]) -> dict[str, Array]:
    return {f"{kind}{i}": array for i, array in enumerate(arrays)}


def load_calibration(path: Path) -> Calibration:
    """Read what `save_calibration` wrote; every array has the bits that it had.

    Raises:
        QuantizationError: the file is something else.
        OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return _unpack({name: stored[name] for name in stored.files})
    except (AttributeError, BadZipFile, EOFError, LookupError, TypeError, ValueError):
        raise QuantizationError(
            f"{path} does not hold the statistics of a calibration",
            fix="delete it; the next build calibrates again",
            code="TW-3122",
        ) from None


def _unpack(arrays: Mapping[str, Array]) -> Calibration:
    header = json.loads(arrays["header"].tobytes())
    histograms = {
        name: Histogram(low, high, arrays[f"counts{i}"])
        for i, (name, (low, high)) in enumerate(header["histograms"].items())
    }
    lows, highs = arrays["lows"], arrays["highs"]
    outputs = iter(range(sum(header["pre_activations"].values())))
    return Calibration(
        header["samples"],
        {
            name: TensorStatistics(lows[:, i], highs[:, i], histograms.get(name))
            for i, name in enumerate(header["values"])
        },
        {name: arrays[f"mean{i}"] for i, name in enumerate(header["means"])},
        {
            name: [arrays[f"output{next(outputs)}"] for _ in range(count)]
            for name, count in header["pre_activations"].items()
        },
        {name: arrays[f"top{i}"] for i, name in enumerate(header["channel_tops"])},
        {name: arrays[f"factor{i}"] for i, name in enumerate(header["smoothing"])},
    )
