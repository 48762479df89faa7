"""Constants with the same type, shape and bytes become one; the first name stays."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import PassResult
from tilewright.importer.graphs import array_of

NAME = "deduplicate"


def run(model: ir.Model) -> PassResult:
    by_size: dict[tuple[object, ...], list[ir.Value]] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING or value.is_graph_output():
            continue
        key = (tensor.dtype, tuple(tensor.shape.numpy()))
        by_size.setdefault(key, []).append(value)
    changes = 0
    for group in by_size.values():
        if len(group) > 1:
            changes += _merge(model.graph, group)
    return PassResult(NAME, changes)


def _merge(graph: ir.Graph, group: list[ir.Value]) -> int:
    first_of: dict[bytes, ir.Value] = {}
    merged = 0
    for value in group:
        array = array_of(value)
        assert array is not None
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()
        first = first_of.setdefault(digest, value)
        if first is not value:
            value.replace_all_uses_with(first)
            graph.initializers.pop(value.name or "")
            merged += 1
    return merged
