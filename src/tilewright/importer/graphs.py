"""Reading an onnx-ir graph: constants, static shapes, single uses, typed attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[np.generic]

QUANTIZE_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def is_constant(value: ir.Value | None) -> bool:
    """Whether the value is an initializer that no caller of the model can override."""
    return value is not None and value.is_initializer() and not value.is_graph_input()


def array_of(value: ir.Value | None) -> Array | None:
    """The content of a constant value, or None for everything else (also for a missing input)."""
    if value is None or not is_constant(value) or value.const_value is None:
        return None
    return cast(Array, value.const_value.numpy())


def is_float_constant(value: ir.Value | None) -> bool:
    """Whether the value is a floating-point constant; reads no content."""
    return (
        value is not None
        and is_constant(value)
        and value.dtype is not None
        and value.dtype.is_floating_point()
    )


def float_array(value: ir.Value | None) -> npt.NDArray[np.float64] | None:
    """The content of a constant floating-point value in float64, or None."""
    array = array_of(value) if is_float_constant(value) else None
    return None if array is None else np.asarray(array, dtype=np.float64)


def scalar_of(value: ir.Value | None) -> float | None:
    """The number in a constant floating-point value of one element, or None."""
    array = array_of(value) if is_float_constant(value) else None
    return None if array is None or array.size != 1 else float(array.reshape(()))


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape when every dimension is a known number >= 0, else None."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    if all(isinstance(dim, int) and dim >= 0 for dim in dims):
        return cast("tuple[int, ...]", tuple(dims))
    return None


def size_in_bytes(value: ir.Value) -> int | None:
    """Bytes of the value's content, or None when type or shape is unknown."""
    shape = static_shape(value)
    if shape is None or value.dtype is None or value.dtype == ir.DataType.STRING:
        return None
    return math.ceil(math.prod(shape) * value.dtype.itemsize)


def sole_consumer(value: ir.Value) -> ir.Node | None:
    """The node that alone reads the value, once; None for graph outputs and shared values.

    A node inside a subgraph does not count as the reader of a value made outside.
    """
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node, maker = next(iter(uses)).node, value.producer()
    return node if maker is None or maker.graph is node.graph else None


def producer_of(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes the value, if it is the named operator of the default domain."""
    node = value.producer() if value is not None else None
    if node is None or node.domain != "" or node.op_type != op_type:
        return None
    return node


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Input `index`; None when it is omitted."""
    return node.inputs[index] if index < len(node.inputs) else None


def data_input(node: ir.Node, index: int = 0) -> ir.Value:
    """Input `index` of a node whose operator requires it."""
    value = input_at(node, index)
    assert value is not None, f"{node.op_type} {node.name} has no input {index}"
    return value


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def string_attribute(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def ints_attribute(node: ir.Node, name: str) -> tuple[int, ...] | None:
    attribute = node.attributes.get(name)
    return None if attribute is None else tuple(attribute.as_ints())


def subgraphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of a control-flow node."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def is_quantized(model: ir.Model) -> bool:
    """Whether the model already carries QuantizeLinear or DequantizeLinear nodes (any domain)."""
    return any(node.op_type in QUANTIZE_OPS for node in model.graph)
