"""Running ONNX models on many samples: one session, samples in parallel, results in order.

Each run uses one thread and as many runs go on at once as there are processors: operators of small
networks do not scale over threads, samples do.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import onnx_ir as ir

from tilewright.inference import InferenceSession

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]

LARGEST_PROTOBUF = 1 << 30

T = TypeVar("T")
R = TypeVar("R")


class Session:
    """A model in onnxruntime; `run` may be called from several threads."""

    def __init__(self, model: ir.Model | bytes) -> None:
        if isinstance(model, bytes) or _constant_bytes(model) < LARGEST_PROTOBUF:
            data = model if isinstance(model, bytes) else ir.to_proto(model).SerializeToString()
            self._session = InferenceSession(data, threads=1)
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "model.onnx")
                ir.save(model, path, external_data="model.data")
                self._session = InferenceSession(str(path), threads=1)
        self.inputs, self.outputs = self._session.inputs, self._session.outputs

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """All outputs; values that the model does not take are ignored."""
        given = {name: feeds[name] for name in self.inputs}
        return dict(zip(self.outputs, self._session.run(self.outputs, given), strict=True))


def _constant_bytes(model: ir.Model) -> int:
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def workers() -> int:
    """Processors that this process may use, 8 at most."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return min(count, 8)


def ordered_map(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results in the items' order; few items are held at a time."""
    count = workers()
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
