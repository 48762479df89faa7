"""`Runtime`: one loaded graph file and one context of the C runtime."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import (
    ArtifactError,
    DataError,
    EnvironmentFault,
    TilewrightError,
    UnsupportedError,
    nearest,
)
from tilewright.graph import DType, Graph
from tilewright.runtime import library

Array = npt.NDArray[Any]
Values = dict[str, Array]

_ERRORS: dict[int, type[TilewrightError]] = {
    1: ArtifactError,
    2: ArtifactError,
    3: ArtifactError,
    4: UnsupportedError,
    5: EnvironmentFault,
    6: DataError,
    7: EnvironmentFault,
}
"""Status of the C interface -> exception."""


@dataclass(frozen=True)
class Description:
    """A graph input, output or stored tensor.

    Args:
        shape: ONNX shape; of a stored tensor its stored shape.
        stored_shape: stored axis i holds ONNX axis `permutation[i]`.
        picture_channels: channels of the u8 picture [N, H, W, C] that an input takes, 0 for none.
    """

    name: str
    dtype: DType
    scale: float
    zero_point: int
    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    permutation: tuple[int, ...]
    picture_channels: int

    @property
    def picture_shape(self) -> tuple[int, ...]:
        return (*self.stored_shape[:-1], self.picture_channels)


class Runtime:
    """An integer graph on this processor.

    Args:
        model: a graph, or the bytes of a graph file.
        threads: 1 to 64.
        keep_tensors: give every tensor memory of its own, so that `tensor` works.
        measure: note the time of every node.

    Raises:
        ArtifactError: the graph file is damaged.
        UnsupportedError: the runtime lacks something that the graph needs.
        EnvironmentFault: no runtime library, no memory, or no threads.
    """

    def __init__(
        self,
        model: Graph | bytes | memoryview,
        threads: int = 1,
        *,
        keep_tensors: bool = False,
        measure: bool = False,
    ) -> None:
        self._library = library.load()
        self._data = _aligned(_graph_file(model))
        self._model = ctypes.c_void_p()
        self._context = ctypes.c_void_p()
        message = ctypes.create_string_buffer(512)
        status = self._library.tw_model_load_memory(
            self._data.ctypes.data, self._data.nbytes, ctypes.byref(self._model), message, 512
        )
        self._require(status, message.value.decode(errors="replace"))
        self._release_model = weakref.finalize(self, self._library.tw_model_release, self._model)
        self._options = library.Options(threads, keep_tensors, measure, 0)
        status = self._library.tw_context_create(
            self._model, ctypes.byref(self._options), ctypes.byref(self._context)
        )
        self._require(status, f"no context with {threads} threads could be made")
        self._release_context = weakref.finalize(
            self, self._library.tw_context_release, self._context
        )
        lib = self._library
        self.input_descriptions = self._describe(lib.tw_model_inputs, lib.tw_model_input)
        self.output_descriptions = self._describe(lib.tw_model_outputs, lib.tw_model_output)

    def close(self) -> None:
        """Release memory and threads now; the object cannot be used any more."""
        self._release_context()
        self._release_model()

    @property
    def instruction_set(self) -> str:
        """Of the kernels in use: portable, avx2, avxvnni or avx512vnni."""
        return str(self._library.tw_model_isa(self._model).decode())

    @property
    def memory_bytes(self) -> int:
        """Working memory of this context, constants aside."""
        return int(self._library.tw_model_context_bytes(self._model, ctypes.byref(self._options)))

    def run(self, feeds: Mapping[str, Array]) -> Values:
        """Float values in ONNX layout to float values in ONNX layout.

        A u8 array feeds an input with built-in preprocessing as a picture [N, H, W, C].

        Raises:
            DataError: an input is missing, unknown or has the wrong shape.
        """
        self.set_inputs(feeds)
        self.run_again()
        return self.outputs()

    def run_codes(self, feeds: Mapping[str, Array]) -> Values:
        """As `run`, with codes in stored layout on both sides."""
        self._check_names(feeds)
        for i, d in enumerate(self.input_descriptions):
            codes = np.ascontiguousarray(feeds[d.name], d.dtype.numpy)
            _check_shape(d.name, codes.shape, d.stored_shape)
            self._call(self._library.tw_context_set_codes, i, codes.ctypes.data, codes.nbytes)
        self.run_again()
        results: Values = {}
        for i, d in enumerate(self.output_descriptions):
            codes = np.empty(d.stored_shape, d.dtype.numpy)
            self._call(self._library.tw_context_get_codes, i, codes.ctypes.data, codes.nbytes)
            results[d.name] = codes
        return results

    def set_inputs(self, feeds: Mapping[str, Array]) -> None:
        """Set every input; they stay set over any number of runs."""
        self._check_names(feeds)
        for i, d in enumerate(self.input_descriptions):
            value = np.asarray(feeds[d.name])
            if value.dtype == np.uint8 and d.picture_channels:
                picture = np.ascontiguousarray(value)
                _check_shape(d.name, picture.shape, d.picture_shape)
                function = self._library.tw_context_set_picture
                self._call(function, i, picture.ctypes.data, picture.nbytes)
                continue
            values = np.ascontiguousarray(value, np.float32)
            _check_shape(d.name, value.shape, d.shape)
            self._call(self._library.tw_context_set_float, i, values.ctypes.data, values.size)

    def run_again(self) -> None:
        """Run with the inputs as they are set."""
        self._call(self._library.tw_context_run)

    def outputs(self) -> Values:
        """Float values of the outputs of the last run, in ONNX layout."""
        results: Values = {}
        for i, d in enumerate(self.output_descriptions):
            values = np.empty(d.shape, np.float32)
            self._call(self._library.tw_context_get_float, i, values.ctypes.data, values.size)
            results[d.name] = values
        return results

    def tensor(self, name: str) -> Array:
        """Codes of a stored tensor after the last run; needs `keep_tensors`."""
        if name not in self._tensor_index:
            raise DataError(f"tensor {name} does not exist; {nearest(name, self._tensor_index)}")
        index, d = self._tensor_index[name]
        codes = np.empty(d.stored_shape, d.dtype.numpy)
        self._call(self._library.tw_context_read_tensor, index, codes.ctypes.data, codes.nbytes)
        return codes

    def node_nanoseconds(self) -> dict[str, tuple[str, int]]:
        """Node name -> (operator, nanoseconds in the last run); needs `measure`."""
        lib = self._library
        return {
            lib.tw_model_node_name(self._model, i).decode(): (
                lib.tw_model_node_operator(self._model, i).decode(),
                int(lib.tw_context_node_nanoseconds(self._context, i)),
            )
            for i in range(lib.tw_model_nodes(self._model))
        }

    @property
    def _tensor_index(self) -> dict[str, tuple[int, Description]]:
        lib = self._library
        described = self._describe(lib.tw_model_tensors, lib.tw_model_tensor)
        return {d.name: (i, d) for i, d in enumerate(described)}

    def _describe(
        self, count: Callable[..., int], describe: Callable[..., int]
    ) -> tuple[Description, ...]:
        descriptions = []
        for i in range(count(self._model)):
            raw = library.RawDescription()
            self._require(describe(self._model, i, ctypes.byref(raw)), "no such tensor")
            descriptions.append(_description(raw))
        return tuple(descriptions)

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        status = function(self._context, *arguments)
        if status:
            text = self._library.tw_context_error(self._context).decode(errors="replace")
            self._require(status, text)

    def _require(self, status: int, message: str) -> None:
        if status:
            text = message or self._library.tw_status_text(status).decode()
            raise _ERRORS.get(status, EnvironmentFault)(f"C runtime: {text}")

    def _check_names(self, feeds: Mapping[str, Array]) -> None:
        names = [d.name for d in self.input_descriptions]
        for name in feeds:
            if name not in names:
                raise DataError(f"the graph has no input {name}; {nearest(name, names)}")
        missing = [name for name in names if name not in feeds]
        if missing:
            raise DataError(f"input {missing[0]} is not given")


def _graph_file(model: Graph | bytes | memoryview) -> bytes | memoryview:
    if isinstance(model, Graph):
        from tilewright.graphfile import write

        return write(model)
    return model


def _aligned(data: bytes | memoryview) -> npt.NDArray[np.uint8]:
    """A copy at a 64-byte boundary, as in a mapped file."""
    source = np.frombuffer(data, np.uint8)
    memory = np.empty(source.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + source.size]
    aligned[:] = source
    return aligned


def _description(raw: library.RawDescription) -> Description:
    rank = raw.rank
    return Description(
        raw.name.decode(),
        DType(raw.dtype),
        raw.scale,
        raw.zero_point,
        tuple(raw.shape[:rank]),
        tuple(raw.stored_shape[:rank]),
        tuple(raw.permutation[:rank]),
        raw.picture_channels,
    )


def _check_shape(name: str, given: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if given != wanted:
        raise DataError(f"input {name} has shape {list(given)}, the graph takes {list(wanted)}")
