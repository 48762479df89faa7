"""Affine functions that move through Reshape, Transpose, Slice and Split into what is before."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, imported, normal, only, ops
from importer_text import graph

from tilewright.importer import SOURCE_KEY, import_model
from tilewright.importer.passes import affine_after, affine_before

TOKENS = {"x": (2, 6, 8)}
WEIGHT = {"w": normal(8, 12)}


def factor(*shape, seed=3):
    return normal(*shape, seed=seed) + np.float32(2)


def folds(body, inputs, constants, expected):
    part, changes = applied(graph(body, inputs, constants, opset=18), affine_after.run)
    assert changes == 1 and ops(part) == expected, ops(part)
    return part


def stays(body, inputs, constants):
    part, changes = applied(graph(body, inputs, constants, opset=18), affine_after.run)
    assert changes == 0, ops(part)


@pytest.mark.parametrize("kind", ["Mul", "Add"])
@pytest.mark.parametrize("shape", [(12,), (1, 1, 12), (1,), ()])
def test_behind_a_product_of_tokens(kind, shape):
    constants = {**WEIGHT, "k": factor(*shape)}
    body = f"p = MatMul(x, w) y = {kind}(p, k)"
    if kind == "Add" and len(shape) < 2:
        stays(body, TOKENS, constants)
    else:
        folds(body, TOKENS, constants, ["MatMul"] if kind == "Mul" else ["MatMul", "Add"])


def test_behind_a_product_of_tokens_with_its_bias():
    constants = {**WEIGHT, "b": factor(12), "k": factor(12, seed=4)}
    body = "p = MatMul(x, w) q = Add(p, b) y = Mul(q, k)"
    part = folds(body, TOKENS, constants, ["MatMul", "Add"])
    assert only(part, "Add").metadata_props[SOURCE_KEY] == "MatMul_0,Add_1,Mul_2"


@pytest.mark.parametrize(
    ("moves", "shape"),
    [
        ("h = Reshape(p, [2, 6, 3, 4])", (3, 4)),
        ("t = Reshape(p, [2, 6, 3, 4]) h = Transpose<perm = [0, 2, 1, 3]>(t)", (3, 1, 4)),
        ("t = Reshape(p, [2, 6, 3, 4]) h = Transpose<perm = [2, 0, 3, 1]>(t)", (3, 1, 4, 1)),
        ("h = Reshape(p, [12, 12])", (12,)),
        ("h = Slice(p, [1], [3], [1])", (12,)),
        ("h = Slice(p, [2], [8], [2])", (6,)),
        ("h = Transpose<perm = [0, 2, 1]>(p)", ()),
    ],
)
def test_through_movement(moves, shape):
    part, changes = applied(
        graph(f"p = MatMul(x, w) {moves} y = Mul(h, k)", TOKENS, {**WEIGHT, "k": factor(*shape)}),
        affine_after.run,
    )
    assert changes == 1 and "Mul" not in ops(part)


def test_batch_normalisation_behind_a_reshape():
    names = ["gamma", "beta", "mean", "variance"]
    constants = {**WEIGHT, **{name: factor(12, seed=i) for i, name in enumerate(names)}}
    constants["variance"] = np.abs(constants["variance"])
    body = (
        "p = MatMul(x, w) r = Reshape(p, [12, 12])"
        " n = BatchNormalization(r, gamma, beta, mean, variance) y = Reshape(n, [2, 6, 3, 4])"
    )
    assert ops(imported(graph(body, TOKENS, constants)).model) == ["MatMul", "Add", "Reshape"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("p = MatMul(x, w) r = Reshape(p, [12, 12]) n = {} y = Mul(n, r)", "read elsewhere"),
        ("p = MatMul(x, w) r = Reshape(p, [12, 12, 1]) s = Transpose<perm = [1, 0, 2]>(r) y = {}",
         "differs among the elements"),
    ],
)  # fmt: skip
def test_a_batch_normalisation_that_stays_says_why(body, reason):
    names = ["gamma", "beta", "mean", "variance"]
    constants = {**WEIGHT, **{name: factor(12, seed=i) for i, name in enumerate(names)}}
    constants["variance"] = np.abs(constants["variance"])
    operand = "s" if "s =" in body else "r"
    body = body.format(f"BatchNormalization({operand}, gamma, beta, mean, variance)")
    result = import_model(graph(body, TOKENS, constants))
    (miss,) = result.near_misses
    assert miss.rule == "affine_after" and reason in miss.reason


def test_one_part_of_a_split():
    """Scaled queries of a joint projection: its other channels keep their weights."""
    constants = {**WEIGHT, "b": factor(12)}
    body = (
        "p = MatMul(x, w) a = Add(p, b) q, k, v = Split(a, [3, 4, 5])".replace(
            "Split(", "Split<axis = 2>("
        )
        + " y = Mul(q, 0.125)"
    )
    model = graph(body, TOKENS, constants, outputs=["y", "k", "v"], opset=18)
    part, changes = applied(model, affine_after.run)
    assert changes == 1 and ops(part) == ["MatMul", "Add", "Split"]
    assert [value.name for value in part.graph.outputs] == ["y", "k", "v"]


def test_one_part_of_a_stack():
    """Queries, keys and values stacked on an axis of their own, as timm writes them."""
    body = (
        "p = MatMul(x, w) r = Reshape(p, [2, 6, 3, 2, 2]) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
        " q, k, v = Split<axis = 0>(t, [1, 1, 1]) y = Mul(q, 0.5)"
    )
    model = graph(body, TOKENS, WEIGHT, outputs=["y", "k", "v"], opset=18)
    part, changes = applied(model, affine_after.run)
    assert changes == 1 and "Mul" not in ops(part)


def test_a_convolution_takes_it_through_its_flattening():
    constants = {"w": normal(6, 3, 1, 1), "k": factor(6)}
    body = (
        "c = Conv(x, w) r = Reshape(c, [2, 6, 20]) t = Transpose<perm = [0, 2, 1]>(r) y = Mul(t, k)"
    )
    folds(body, {"x": (2, 3, 4, 5)}, constants, ["Conv", "Reshape", "Transpose"])


STAYING = {
    "varies along the tokens": ("p = MatMul(x, w) y = Mul(p, k)", (6, 1)),
    "rows": ("p = MatMul(x, w) r = Reshape(p, [2, 6, 3, 4]) y = Mul(r, k)", (6, 1, 1)),
    "read twice": ("p = MatMul(x, w) r = Relu(p) m = Mul(p, k) y = Add(m, r)", (12,)),
    "not only moved": ("p = MatMul(x, w) r = Relu(p) y = Mul(r, k)", (12,)),
    "split by token": ("p = MatMul(x, w) q, r = Split<axis = 1>(p, [2, 4]) y = Mul(q, k)", (12,)),
    "read whole": ("p = MatMul(x, w) s = Slice(p, [0], [1], [2]) m = Mul(s, k) y = Div(m, p)", ()),
    "broadcast": ("p = MatMul(x, w) y = Mul(p, k)", (3, 2, 6, 12)),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYING)
def test_what_stays(case):
    body, shape = STAYING[case]
    stays(body, TOKENS, {**WEIGHT, "k": factor(*shape)})


def test_what_does_not_fit_float32_stays():
    constants = {"w": WEIGHT["w"] * np.float32(1e38), "k": np.full(12, 100, np.float32)}
    model = graph("p = MatMul(x, w) y = Mul(p, k)", TOKENS, constants)
    assert ops(import_model(model).model) == ["MatMul", "Mul"]


@pytest.mark.parametrize("op", ["InstanceNormalization", "GroupNormalization"])
def test_behind_a_normalisation_of_channels(op):
    attributes = "<num_groups = 3>" if op == "GroupNormalization" else ""
    constants = {"g": factor(6), "b": factor(6, seed=1), "k": factor(6, 1, 1), "l": factor(6, 1, 1)}
    body = f"n = {op}{attributes}(x, g, b) m = Mul(n, k) y = Add(m, l)"
    model = graph(body, {"x": (2, 6, 4, 5)}, constants, opset=21)
    assert ops(imported(model).model) == [op]


@pytest.mark.parametrize("kind", ["Mul", "Add"])
@pytest.mark.parametrize("shape", [(8,), ()])
def test_before_a_product_of_tokens(kind, shape):
    body = f"r = Relu(x) a = {kind}(r, k) y = MatMul(a, w)"
    model = graph(body, TOKENS, {**WEIGHT, "k": factor(*shape)}, opset=18)
    part, changes = applied(model, affine_before.run)
    expected = ["Relu", "MatMul"] if kind == "Mul" else ["Relu", "MatMul", "Add"]
    assert changes == 1 and ops(part) == expected


@pytest.mark.parametrize(
    "body",
    [
        "r = Relu(x) a = Mul(r, rows) y = MatMul(a, w)",
        "r = Relu(x) a = Mul(r, 0.5) p = MatMul(a, w) q = MatMul(a, w) y = Mul(p, q)",
    ],
)
def test_what_stays_before_a_product_of_tokens(body):
    constants = {**WEIGHT, **({"rows": factor(6, 1)} if "rows" in body else {})}
    assert applied(graph(body, TOKENS, constants, opset=18), affine_before.run)[1] == 0
