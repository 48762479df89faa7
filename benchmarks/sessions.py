"""onnxruntime sessions for measuring: one provider, chosen threads, idle pools that do not spin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

Array = npt.NDArray[Any]
Infer = Callable[[Array], list[Array]]
"""From the network's one input to its outputs."""
Feeds = dict[str, Array]
Run = Callable[[Feeds], dict[str, Array]]
"""From inputs to outputs, by name."""


def session(
    model: Path | onnx.ModelProto, *, threads: int = 2, optimised: bool = True
) -> onnxruntime.InferenceSession:
    """A session on the CPU.

    Args:
        optimised: False leaves every QuantizeLinear and DequantizeLinear as written ("unfused").
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimised:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def infer(model: Path | onnx.ModelProto, *, threads: int = 2, optimised: bool = True) -> Infer:
    """The function that a session computes."""
    loaded = session(model, threads=threads, optimised=optimised)
    name = loaded.get_inputs()[0].name
    return lambda value: [np.asarray(y) for y in loaded.run(None, {name: value})]


def run(model: Path | onnx.ModelProto, *, threads: int = 2, optimised: bool = True) -> Run:
    """The function that a session computes, for any number of inputs."""
    loaded = session(model, threads=threads, optimised=optimised)
    names = [output.name for output in loaded.get_outputs()]
    return lambda feeds: dict(zip(names, loaded.run(names, feeds), strict=True))


def first_outputs(run: Infer, values: Iterable[Array]) -> Array:
    """The first output for each value, stacked along the batch axis."""
    return np.concatenate([run(value)[0] for value in values])
