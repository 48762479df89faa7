"""The catalog is sound: numbers, kinds, declarations and refusals of unfit tensors."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir
import pytest
from float_models import refusal

from tilewright.ops import catalog
from tilewright.ops.pattern import FloatGraph, Refusal

CLASSES = sorted(catalog.OPERATORS.values(), key=lambda c: c.CODE)


def test_numbers_and_kinds_are_unique():
    assert len({c.CODE for c in catalog._CLASSES}) == len(set(catalog._CLASSES))
    kinds = [kind for module in catalog.MODULES for kind in module.KINDS]
    assert len(set(kinds)) == len(kinds) == len(catalog.BIND)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_field_is_declared_for_the_graph_file(cls):
    declared = {**cls.attributes(), **cls.constants()}
    assert sorted(f.name for f in dataclasses.fields(cls)) == sorted(declared)
    assert all(d.doc for d in declared.values())
    assert cls.__doc__


def test_every_named_operator_exists_in_onnx():
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert set(catalog.BY_ONNX_TYPE) <= known | {"Upsample"}


def test_the_support_table_has_a_row_for_every_operator():
    rows = catalog.support_table()
    assert rows == sorted(rows)
    assert {r.onnx for r in rows} == set(catalog.BY_ONNX_TYPE)
    assert all(r.operators and r.types and r.limits for r in rows)
    assert all(len(module.LIMITS) <= 150 for module in catalog.MODULES)


def test_unfit_tensors():
    assert refusal("(int64[2] x) => (int64[2] y) { y = Add(x, x) }") == (
        "its tensor x is int64, not float"
    )
    assert refusal("(float[0,2] x) => (float[0,2] y) { y = Relu(x) }") == (
        "its tensor x has no elements"
    )
    assert refusal("(float x) => (float y) { y = Relu(x) }") == "its tensor x is a scalar"
    assert refusal("(float[n] x) => (float[n] y) { y = Relu(x) }") == (
        "the shape of its tensor x is not known"
    )
    assert refusal("(float[2] x) => (float[2] y) { y = Relu(c) }", c=[1.0, 2.0]) == (
        "all its operands are constant"
    )


def test_unknown_operators_name_their_domain():
    value = ir.Value(name="v", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    node = ir.Node("com.vendor", "Relu", [value], num_outputs=1)
    graph = ir.Graph([value], node.outputs, nodes=[node], name="g")
    found = catalog.match(node, FloatGraph(graph))
    assert found == Refusal("no NPU lowering for Relu (com.vendor)")
