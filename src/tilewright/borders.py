"""Crossing between float ONNX tensors and stored codes (section 3 of the arithmetic).

The same conversions serve the reference and the machine; C has its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import numerics
from tilewright.errors import DataError
from tilewright.graph import Border, Graph, TensorType

Array = npt.NDArray[Any]


def quantize_input(border: Border, tensor: TensorType, value: Array) -> Array:
    """A float array in ONNX layout, or a u8 picture NHWC for a border with a pixel table, to codes.

    Raises:
        DataError: the shape is not the border's.
    """
    if border.pixel_table is not None and value.dtype == np.uint8:
        return _look_up(border, tensor, value)
    if value.shape != border.shape:
        raise DataError(
            f"input {border.name} is {list(value.shape)}, the model takes {list(border.shape)}",
            code="TW-1210",
        )
    lo, hi = tensor.dtype.range
    codes = numerics.quantize(value, tensor.scale, tensor.zero_point, lo, hi)
    stored = codes.transpose(border.permutation).reshape(tensor.shape)
    return np.ascontiguousarray(stored.astype(tensor.dtype.numpy))


def _look_up(border: Border, tensor: TensorType, picture: Array) -> Array:
    assert border.pixel_table is not None
    if picture.shape != tensor.shape:
        raise DataError(
            f"input {border.name} is a u8 picture {list(picture.shape)}, "
            f"the model takes {list(tensor.shape)}",
            code="TW-1211",
        )
    channels = border.pixel_channels or tuple(range(tensor.shape[-1]))
    planes = [border.pixel_table[picture[..., source], c] for c, source in enumerate(channels)]
    return np.ascontiguousarray(np.stack(planes, axis=-1).astype(tensor.dtype.numpy))


def dequantize_output(border: Border, tensor: TensorType, codes: Array) -> npt.NDArray[np.float32]:
    """Stored codes to float32 in ONNX layout."""
    real = numerics.dequantize(codes.reshape(tensor.shape), tensor.scale, tensor.zero_point)
    inverse = np.argsort(border.permutation)
    return np.ascontiguousarray(real.transpose(inverse).reshape(border.shape))


def quantize_inputs(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Codes of every graph input by tensor name."""
    missing = [b.name for b in graph.inputs if b.name not in feeds]
    if missing:
        raise DataError(f"no value for input {missing[0]}", code="TW-1212")
    return {
        b.tensor: quantize_input(b, graph.tensors[b.tensor], feeds[b.name]) for b in graph.inputs
    }


def dequantize_outputs(graph: Graph, codes: dict[str, Array]) -> dict[str, Array]:
    """Float outputs by ONNX name from codes by tensor name."""
    return {
        b.name: dequantize_output(b, graph.tensors[b.tensor], codes[b.tensor])
        for b in graph.outputs
    }
