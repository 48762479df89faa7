"""A compiled model behind the interface of onnxruntime's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.compiled import CompiledModel
from tilewright.errors import DataError, nearest
from tilewright.execution import Array, Port

if TYPE_CHECKING:
    import os


class InferenceSession:
    """A compiled model behind the interface of onnxruntime's class of the same name.

    Args:
        path: compiled.onnx, or the folder of a build.
        executor: one of EXECUTORS; all give the same bits.
        mode: NPU mode of the machine.
        threads: of the C runtime; default: one per core.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        executor: str = "runtime",
        mode: str | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = CompiledModel(path)
        self._execution = self._model.execution(executor, mode=mode, threads=threads)

    def get_inputs(self) -> list[Port]:
        """Name, shape and type of each input."""
        return list(self._model.plan.inputs)

    def get_outputs(self) -> list[Port]:
        """Name, shape and type of each output."""
        return list(self._model.plan.outputs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in the order of `output_names`, or all of them.

        Raises:
            DataError: an unknown output, or feeds that do not fit.
        """
        known = [port.name for port in self._model.plan.outputs]
        names = known if output_names is None else list(output_names)
        for name in names:
            if name not in known:
                fix = nearest(name, known)
                raise DataError(f"the model has no output {name!r}", fix=fix, code="TW-1234")
        values = self._execution.run(feeds)
        return [values[name] for name in names]
