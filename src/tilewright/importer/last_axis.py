"""Writing an operator that works along the last axis for a tensor where that axis is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Editor
from tilewright.importer.graphs import static_shape


def over_last_axis(
    editor: Editor,
    value: ir.Value,
    axes: Sequence[int],
    write: Callable[[ir.Value], ir.Value],
    *,
    before: ir.Node,
    sources: Sequence[ir.Node],
) -> ir.Value:
    """`write` applied to the value with `axes` (ascending) last and merged into one, then undone.

    `write` keeps the shape of what it is given.
    """
    shape = static_shape(value)
    assert shape is not None
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*kept, *axes]
    moved = [shape[axis] for axis in order]
    merged = [*moved[: len(kept)], math.prod(moved[len(kept) :])]

    def emit(op_type: str, inputs: list[ir.Value], attributes: dict[str, list[int]]) -> ir.Value:
        return editor.emit(op_type, inputs, attributes, before=before, sources=sources)[0]

    def reshape(x: ir.Value, dims: list[int]) -> ir.Value:
        operand = editor.constant(np.asarray(dims, np.int64), f"{before.name}_shape")
        return emit("Reshape", [x, operand], {})

    transposed = order != sorted(order)
    if transposed:
        value = emit("Transpose", [value], {"perm": order})
    if len(axes) > 1:
        value = reshape(value, merged)
    value = write(value)
    if len(axes) > 1:
        value = reshape(value, moved)
    if transposed:
        value = emit("Transpose", [value], {"perm": [order.index(i) for i in range(len(order))]})
    return value
