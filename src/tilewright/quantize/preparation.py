"""What happens to the float model before calibration: algorithms, and where precision changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.ops.pattern import FloatGraph
from tilewright.quantize.algorithms import ALGORITHMS
from tilewright.quantize.algorithms.smoothing import smooth
from tilewright.quantize.calibrate import Progress
from tilewright.quantize.scheme import Scheme
from tilewright.quantize.sessions import Feeds
from tilewright.quantize.sites import find_sites
from tilewright.quantize.streams import find_streams, widen_streams


@dataclass(frozen=True)
class Prepared:
    """A float model that computes the same function and is ready to calibrate.

    Args:
        scheme: with the choices that depend on the network made.
        wide: names of values that keep 16 bits.
        notes: sentences on what was changed.
    """

    model: ir.Model
    scheme: Scheme
    wide: frozenset[str]
    notes: tuple[str, ...]


def prepare(
    model: ir.Model, samples: Iterable[Feeds], scheme: Scheme, progress: Progress | None
) -> Prepared:
    """Apply the algorithms of `scheme` that change the float model.

    Args:
        model: canonical; left unchanged.
        samples: read once where a normalisation is smoothed.
    """
    notes: list[str] = []
    if scheme.equalization:
        changed = ALGORITHMS["equalization"].apply(model)
        model = changed.model
        notes += changed.notes
    streams = find_streams(find_sites(FloatGraph(model.graph)))
    observer = scheme.observer.of_network(transformer=bool(streams))
    scheme = dataclasses.replace(scheme, observer=observer)
    if not streams:
        return Prepared(model, scheme, frozenset(), tuple(notes))
    if scheme.smoothing:
        changed = smooth(model, samples, progress)
        model = changed.model
        notes += changed.notes
    if scheme.residual_stream == "same":
        return Prepared(model, scheme, frozenset(), tuple(notes))
    widened = widen_streams(model)
    notes.append(
        f"{len(widened.wide)} tensors of the residual stream keep 16 bits; "
        f"{widened.narrowed} of them are rounded to 8 bits for the products that read them"
    )
    return Prepared(widened.model, scheme, widened.wide, tuple(notes))
