"""onnxruntime, with one sentence for whatever it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import ModelError

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

# Everything below "fatal" is raised as well, and reported once.
_FATAL = 4

_NOT_USED = ["QDQPropagationTransformer"]
"""Passes of onnxruntime that break models: this one writes s8 QuantizeLinear nodes of opset 21
next to the Reshape of a MatMul with Add, which onnxruntime then refuses to load."""


class InferenceSession:
    """A model in onnxruntime on this CPU; `run` may be called from several threads.

    Args:
        model: path of the file, or its content.
        threads: inside operators; 0 leaves it to onnxruntime.
        optimised: whether onnxruntime may rewrite the graph.

    Raises:
        ModelError: onnxruntime does not load the model.
    """

    def __init__(self, model: str | bytes, *, threads: int = 0, optimised: bool = True) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = threads
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = onnxruntime.InferenceSession(
                model,
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=_NOT_USED,
            )
        except Exception as error:  # onnxruntime's classes derive from plain RuntimeError
            raise _refused("load", error) from error
        self.inputs = [i.name for i in self._session.get_inputs()]
        self.outputs = [o.name for o in self._session.get_outputs()]

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Any]:
        """The named outputs in that order.

        Raises:
            ModelError: the model does not run on these values.
        """
        # Failed runs are logged at the level of the run, not of the session.
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = _FATAL
        try:
            found: list[Any] = self._session.run(list(outputs), dict(feeds), options)
        except Exception as error:  # as above; also ValueError for a feed that is missing
            raise _refused("run", error) from error
        return found


def _refused(verb: str, error: Exception) -> ModelError:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(f"onnxruntime cannot {verb} the model: {text[0]}", code="TW-1120")
