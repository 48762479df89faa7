"""Softmax in its spellings, and the scale of attention scores."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, attribute, imported, normal, only, ops
from importer_text import graph

from tilewright.importer import import_model
from tilewright.importer.passes import attention_scale

X = {"x": (2, 5, 8)}

SHIFT = "m = ReduceMax<axes = [-1]>(x) z = Sub(x, m) e = Exp(z)"

SOFTMAX = {
    "division": f"{SHIFT} s = ReduceSum(e, [-1]) y = Div(e, s)",
    "reciprocal": f"{SHIFT} s = ReduceSum(e, [2]) r = Reciprocal(s) y = Mul(r, e)",
    "inverse": f"{SHIFT} s = ReduceSum(e, [2]) r = Div(1.0, s) y = Mul(e, r)",
    "no maximum": "e = Exp(x) s = ReduceSum(e, [-1]) y = Div(e, s)",
    "dimensions dropped": "m = ReduceMax<axes = [-1], keepdims = 0>(x) k = Unsqueeze(m, [2])"
    " z = Sub(x, k) e = Exp(z) t = ReduceSum<keepdims = 0>(e, [2]) s = Unsqueeze(t, [2])"
    " y = Div(e, s)",
    "maximum of all": "m = ReduceMax<keepdims = 0>(x) z = Sub(x, m) e = Exp(z)"
    " s = ReduceSum(e, [-1]) y = Div(e, s)",
    "maximum before the operator": "m = ReduceMax<axes = [-1]>(x) z = Sub(x, m)"
    " y = Softmax<axis = -1>(z)",
}


@pytest.mark.parametrize("spelling", SOFTMAX)
def test_softmax(spelling):
    result = imported(graph(SOFTMAX[spelling], X)).model
    assert ops(result) == ["Softmax"]
    assert attribute(only(result, "Softmax"), "axis") == 2


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ([1], ["Softmax"]),
        ([1, 2], ["Reshape", "Softmax", "Reshape"]),
        ([0, 2], ["Transpose", "Reshape", "Softmax", "Reshape", "Transpose"]),
    ],
)
def test_softmax_over_other_axes(axes, expected):
    body = f"e = Exp(x) s = ReduceSum(e, {axes}) y = Div(e, s)"
    assert ops(imported(graph(body, X)).model) == expected


@pytest.mark.parametrize(
    "body",
    [
        f"{SHIFT} s = ReduceSum(e, [-1]) l = Log(s) y = Sub(z, l)",
        "l = ReduceLogSumExp<axes = [-1]>(x) y = Sub(x, l)",
    ],
)
def test_log_softmax(body):
    assert ops(imported(graph(body, X)).model) == ["LogSoftmax"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("e = Exp(x) s = ReduceSum(e, [-1]) a = Add(s, 1e-6) y = Div(e, a)", "1e-06 is added"),
        ("e = Exp(x) f = Exp(z) s = ReduceSum(f, [-1]) y = Div(e, s)", "a sum over f"),
        ("e = Exp(x) s = ReduceMean<axes = [-1]>(e) y = Div(e, s)", None),
    ],
)
def test_what_is_nearly_a_softmax(body, reason):
    model = graph(body, {**X, "z": (2, 5, 8)})
    result = import_model(model)
    assert "Softmax" not in ops(result.model)
    assert [miss.rule for miss in result.near_misses] == (["softmax"] if reason else [])
    assert reason is None or reason in result.near_misses[0].reason


HEADS = "r{0} = Reshape(p{0}, [2, 5, 2, 4]) {0} = Transpose<perm = {1}>(r{0})"
QUERY, KEY = "[0, 2, 1, 3]", "[0, 2, 3, 1]"
WEIGHTS = {name: normal(8, 8, seed=i) for i, name in enumerate(("wq", "wk", "bq"))}
WEIGHTS["bq"] = WEIGHTS["bq"][0]

PROJECTIONS = (
    f"mq = MatMul(x, wq) pq = Add(mq, bq) pk = MatMul(x, wk) {HEADS.format('q', QUERY)}"
    f" {HEADS.format('k', KEY)}"
)


@pytest.mark.parametrize(
    "scaled",
    [
        "s = MatMul(q, k) y = Mul(s, 0.5)",
        "s = MatMul(q, k) y = Div(s, 2.0)",
        "t = Mul(q, 0.5) y = MatMul(t, k)",
        "a = Mul(q, 0.70710677) b = Mul(k, 0.70710677) y = MatMul(a, b)",
        "d = Sqrt(4.0) c = Div(1.0, d) h = Sqrt(c) a = Mul(q, h) b = Mul(k, h) y = MatMul(a, b)",
    ],
)
def test_the_scale_moves_into_the_projections(scaled):
    result = imported(graph(f"{PROJECTIONS} {scaled}", X, WEIGHTS)).model
    assert "Mul" not in ops(result) and ops(result).count("MatMul") == 3


def test_the_scale_moves_into_a_part_of_a_joint_projection():
    body = (
        "p = MatMul(x, w) r = Reshape(p, [2, 5, 3, 2, 4]) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
        " a, b, v = Split<axis = 0>(t, [1, 1, 1]) q = Squeeze(a, [0]) c = Squeeze(b, [0])"
        " k = Transpose<perm = [0, 1, 3, 2]>(c) s = MatMul(q, k) y = Mul(s, 0.5)"
    )
    result = imported(graph(body, X, {"w": normal(8, 24)}, outputs=["y", "v"])).model
    assert "Mul" not in ops(result)


def test_the_scale_moves_into_the_keys_where_the_queries_are_not_projected():
    body = (
        f"pk = MatMul(x, wk) {HEADS.format('k', KEY)} z = Relu(x) rq = Reshape(z, [2, 5, 2, 4])"
        " q = Transpose<perm = [0, 2, 1, 3]>(rq) s = MatMul(q, k) y = Mul(s, 0.5)"
    )
    assert "Mul" not in ops(imported(graph(body, X, {"wk": WEIGHTS["wk"]})).model)


def test_the_scale_moves_into_a_normalisation_of_the_queries():
    body = (
        f"{PROJECTIONS} n = LayerNormalization<axis = -1>(q, g) f = Relu(k) s = MatMul(n, f)"
        " y = Mul(s, 0.5)"
    )
    result = imported(graph(body, X, {**WEIGHTS, "g": normal(4) + np.float32(2)})).model
    assert "Mul" not in ops(result)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{PROJECTIONS} s = MatMul(q, k) t = Mul(s, 0.5) y = Add(t, s)", "read elsewhere"),
        ("z = Relu(x) s = MatMul(z, f) y = Mul(s, 0.5)", "neither of z and f"),
        ("z = MatMul(x, wq) f = Transpose<perm = [0, 2, 1]>(z) s = MatMul(z, f) y = Mul(s, 0.5)",
         "neither of z and f"),
    ],
)  # fmt: skip
def test_a_scale_that_stays_says_why(body, reason):
    constants = {name: array for name, array in WEIGHTS.items() if name in body}
    inputs = X if "f =" in body or "q =" in body else {**X, "f": (2, 8, 5)}
    model = graph(body, inputs, constants)
    assert applied(model, attention_scale.run)[1] == 0
    (miss,) = import_model(model).near_misses
    assert miss.rule == "attention_scale" and reason in miss.reason
