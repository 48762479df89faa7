from __future__ import annotations

import onnx_ir as ir

from tilewright.graph import DType, Encoding
from tilewright.ops.builder import Builder, Operand
from tilewright.ops.pattern import FloatGraph


def builder_with_input(shape: tuple[int, ...]) -> tuple[Builder, Operand]:
    value = ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([value], [], nodes=[], name="g")
    builder = Builder(FloatGraph(graph, {"x": Encoding(DType.U8, 0.5, 3)}))
    builder.add_input(value)
    return builder, builder.operand(value)


def test_an_alias_with_other_axes_is_permuted_on_its_own() -> None:
    builder, x = builder_with_input((2, 3, 4, 5))
    assert x.type.shape == (2, 4, 5, 3)
    first = builder.permuted(x, (0, 1, 2, 3))
    alias = Operand(x.name, x.type, (0, 1, 2, 3))
    again = builder.permuted(alias, (0, 3, 1, 2))
    assert first.type.shape == (2, 3, 4, 5)
    assert again.name == first.name and again.permutation == (0, 3, 1, 2)
    other = builder.permuted(alias, (0, 1, 3, 2))
    assert other.name != first.name and other.type.shape == (2, 4, 3, 5)
