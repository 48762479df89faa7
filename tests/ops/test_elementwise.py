"""Add, Sub, Mul and Div: broadcasting, constants on either side, layouts, fused clamps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from float_models import lower, parse, refusal

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops.add import Add, AddConstant
from tilewright.ops.clamp import Rescale
from tilewright.ops.constant import Constant
from tilewright.ops.conv import Conv
from tilewright.ops.mul import Mul
from tilewright.ops.reshape import Reshape
from tilewright.ops.table import Table
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(2)


SHAPES = [
    ("2,3,4,5", "2,3,4,5"),
    ("2,3,4,5", "1,3,1,1"),
    ("2,3,4,5", "2,1,4,5"),
    ("2,3,4,5", "3,4,5"),
    ("2,3,4,5", "4,1"),
    ("2,3,4,5", "5"),
    ("5", "2,3,4,5"),
    ("3,1", "2,1,5"),
    ("2,3,4", "2,3,1"),
    ("2,2,3,2,3", "2,1,3,1,3"),
]


def shape(text):
    return tuple(map(int, text.split(",")))


def two(op, a, b):
    y = ",".join(map(str, np.broadcast_shapes(shape(a), shape(b))))
    return parse(f"(float[{a}] a, float[{b}] b) => (float[{y}] y) {{ y = {op}(a, b) }}")


def one(body, x, y=None, **constants):
    return parse(f"(float[{x}] x) => (float[{y or x}] y) {{ {body} }}", **constants)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasting(op, a, b):
    made = lower(two(op, a, b), {"a": S8, "b": U8, "y": S8}).check(0.52)
    assert made.operators[-1] is (Mul if op == "Mul" else Add)
    assert {*made.operators[:-1]} <= {Reshape, Transpose}


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("types", [*itertools.product([U8, S8, S16], repeat=3)])
def test_types(op, types):
    names = dict(zip("aby", types, strict=True))
    lower(two(op, "2,3,4", "2,3,4"), names).check(0.6 if types[2] is S16 else 0.52)


def test_equal_layouts_need_no_movement():
    assert lower(two("Add", "2,3,4,5", "1,3,1,1"), {"a": S8, "b": S8, "y": S8}).operators == [Add]


def test_the_larger_operand_stays_where_it_is():
    """The gate is brought to the features' layout, never the other way round."""
    made = lower(two("Mul", "3,4,5", "2,3,4,5"), {"a": S8, "b": S8, "y": S8}).check(0.52)
    (last,) = (n for n in made.graph.nodes if isinstance(n.op, Mul))
    assert "b" in last.inputs


def test_a_tensor_and_itself():
    for op in ("Add", "Mul"):
        lower(one(f"y = {op}(x, x)", "2,3"), {"x": S8, "y": S8}).check(0.52)


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_clamps_fuse(op):
    x = "float[2,3,4,4]"
    text = f"({x} a, {x} b) => ({x} y) {{ s = {op}(a, b) y = Relu(s) }}"
    made = lower(parse(text), {"a": S8, "b": S8, "y": U8}).check(0.52)
    assert made.operators == [Mul if op == "Mul" else Add]
    assert [n.op_type for n in made.sites[0].nodes] == [op, "Relu"]


CONSTANTS = ["1", "", "3,1,1", "1,3,1,1", "4,1", "5", "2,1,1,5", "2,3,4,5"]


@pytest.mark.parametrize("body", ["Add(x, c)", "Add(c, x)", "Sub(x, c)", "Sub(c, x)"])
@pytest.mark.parametrize("c", CONSTANTS)
@pytest.mark.parametrize("y", [U8, S16])
def test_constant_terms(body, c, y):
    constant = drawn().normal(0, 1, shape(c) if c else ())
    made = lower(one(f"y = {body}", "2,3,4,5", c=constant), {"x": S8, "y": y}).check(0.52)
    assert made.operators == [AddConstant]


@pytest.mark.parametrize("body", ["Add(x, c)", "Mul(x, c)"])
def test_a_constant_larger_than_the_tensor(body):
    made = lower(
        one(f"y = {body}", "3,1", "2,3,4", c=drawn().normal(0, 1, (2, 3, 4))), {"x": S8, "y": S16}
    )
    # The factor itself has 8 bits: about a hundredth of the largest product.
    made.check(1.0 if body.startswith("Add") else 300.0)
    assert made.operators[0] is Reshape


def test_a_mask_costs_the_scores_nothing():
    c = np.zeros((1, 8))
    c[0, 4:] = -3.4e38
    x, y = Encoding(S8, 0.1, 0), Encoding(S8, 0.1, 0)
    made = lower(one("y = Add(x, c)", "2,8", c=c), {"x": x, "y": y}).check()
    assert made.operators == [AddConstant]


def test_a_sum_that_cannot_be_proven_is_an_error():
    x = TensorType(S16, (2,), 1.0, 0)
    with pytest.raises(QuantizationError, match="62 bits"):
        Add(2**48, 0, 1, -127, 127).infer([x, x], "op")
    with pytest.raises(QuantizationError, match="do not broadcast"):
        Add(1, 1, 1, -127, 127).infer([x, TensorType(S16, (3,), 1.0, 0)], "op")
    with pytest.raises(QuantizationError, match="s32"):
        Add(1, 1, 1, -127, 127).infer([x, TensorType(DType.S32, (2,), 1.0, 0)], "op")
    with pytest.raises(QuantizationError, match="zero point"):
        Add(1, 1, 1, -127, 127).infer([x, TensorType(S16, (2,), 1.0, 5)], "op")


@pytest.mark.parametrize("body", ["Mul(x, c)", "Mul(c, x)", "Div(x, c)"])
@pytest.mark.parametrize("value", [0.3, -2.5])
@pytest.mark.parametrize("y", [U8, S16])
def test_scalar_factors_change_a_ratio(body, value, y):
    made = lower(one(f"y = {body}", "2,3,4,5", c=value), {"x": U8, "y": y}).check(0.51)
    assert made.operators == [Rescale]


def test_a_factor_of_zero():
    made = lower(one("y = Mul(x, c)", "2,3", c=0.0), {"x": U8, "y": Encoding(S8, 0.1, 5)})
    assert made.check().operators == [Rescale]


@pytest.mark.parametrize("op", ["Mul", "Div"])
@pytest.mark.parametrize(
    ("x", "c"),
    [
        ("2,3,4,5", "3,1,1"),
        ("2,3,4,5", "5"),
        ("2,3,4", "3,1"),
        ("2,3", "3"),
        ("3,2,2,2,2", "2,1,1,1"),
    ],
)
def test_a_vector_of_factors_is_a_depthwise_convolution(op, x, c):
    factor = drawn().uniform(0.5, 2, shape(c)) * np.where(drawn().random(shape(c)) < 0.5, -1, 1)
    made = lower(one(f"y = {op}(x, c)", x, c=factor), {"x": U8, "y": S8}).check(0.51)
    assert Conv in made.operators and Mul not in made.operators
    assert made.sites[0].macs == np.prod(shape(x))


def test_a_vector_of_factors_with_zeros_and_a_clamp():
    model = one("m = Mul(x, c) y = Relu(m)", "2,3,4,5", c=np.array([0.0, 1.0, -1.0])[:, None, None])
    assert lower(model, {"x": S8, "y": U8}).check().operators == [Conv]


@pytest.mark.parametrize("x", [S8, S16])
@pytest.mark.parametrize("c", ["4,5", "3,4,1", "2,3,4,5"])
def test_other_factors_are_stored_operands(x, c):
    made = lower(
        one("y = Mul(x, c)", "2,3,4,5", c=drawn().uniform(-2, 2, shape(c))), {"x": x, "y": S8}
    )
    assert made.operators == [Constant, Mul]
    made.check(0.52)
    stored = made.graph.tensors[made.graph.nodes[0].outputs[0]]
    assert stored.dtype is S16 and stored.zero_point == 0


def test_a_constant_over_a_tensor_is_a_table():
    samples = {"x": drawn().uniform(0.5, 2, (2, 3))}
    model = one("y = Div(c, x)", "2,3", c=3.0)
    made = lower(model, {"x": U8, "y": U8}, inputs=samples).check()
    assert made.operators == [Table]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Div(x, x)", "its divisor is computed at run time"),
        ("y = Div(x, c)", "its divisor is zero"),
        ("y = Mul(x, d)", "its constant is not finite"),
    ],
)
def test_refusals(body, reason):
    text = f"(float[2,3] x) => (float[2,3] y) {{ {body} }}"
    assert refusal(text, c=0.0, d=np.inf) == reason
