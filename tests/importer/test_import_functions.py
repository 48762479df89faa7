"""GELU, SiLU, Mish, HardSwish and their like, in the spellings of several exporters."""

from __future__ import annotations

import pytest
from importer_nets import applied, attribute, imported, normal, only, ops
from importer_text import graph

from tilewright.importer import import_model
from tilewright.importer.passes import named_function

X = {"x": (2, 5, 8)}

ERF = {
    "torch, old": "a = Div(x, 1.4142135) b = Erf(a) c = Add(b, 1.0) d = Mul(x, c) y = Mul(d, 0.5)",
    "torch, dynamo": "a = Mul(x, 0.70710677) b = Erf(a) c = Add(b, 1.0) d = Mul(0.5, c)"
    " y = Mul(x, d)",
    "half first": "h = Mul(x, 0.5) a = Div(x, 1.4142135) b = Erf(a) c = Add(1.0, b) y = Mul(h, c)",
    "half of x by division": "h = Div(x, 2.0) a = Mul(0.70710677, x) b = Erf(a) c = Add(b, 1.0)"
    " y = Mul(c, h)",
    "tensorflow": "r = Sqrt(2.0) a = Div(x, r) b = Erf(a) c = Add(1.0, b) d = Mul(0.5, c)"
    " y = Mul(x, d)",
    "paddle": "a = Mul(x, 0.70710677) b = Erf(a) h = Mul(x, 0.5) c = Add(b, 1.0) y = Mul(h, c)",
    "distributed": "a = Mul(x, 0.70710677) b = Erf(a) h = Mul(0.5, x) d = Mul(h, b) y = Add(h, d)",
    "root computed": "a = Pow(2.0, 0.5) s = Div(x, a) b = Erf(s) c = Add(b, 1.0) d = Mul(x, c)"
    " y = Mul(d, 0.5)",
    "complement": "n = Neg(x) a = Div(n, 1.4142135) b = Erf(a) c = Sub(1.0, b) d = Mul(x, c)"
    " y = Mul(d, 0.5)",
}

TANH = {
    "hugging face": "p = Pow(x, 3.0) q = Mul(0.044715, p) s = Add(x, q) t = Mul(0.7978846, s)"
    " u = Tanh(t) v = Add(1.0, u) h = Mul(0.5, x) y = Mul(h, v)",
    "products": "p = Mul(x, x) q = Mul(x, p) r = Mul(q, 0.044715) s = Add(x, r)"
    " t = Mul(s, 0.7978846) u = Tanh(t) v = Add(u, 1.0) w = Mul(v, 0.5) y = Mul(x, w)",
    "factored": "p = Mul(x, x) q = Mul(p, 0.044715) r = Add(q, 1.0) s = Mul(x, r)"
    " t = Mul(s, 0.7978846) u = Tanh(t) v = Add(u, 1.0) w = Mul(x, v) y = Mul(w, 0.5)",
    "sigmoid": "p = Pow(x, 3.0) q = Mul(p, 0.044715) s = Add(x, q) t = Mul(s, 1.5957691)"
    " u = Sigmoid(t) y = Mul(x, u)",
}


@pytest.mark.parametrize("spelling", ERF)
def test_gelu_by_erf(spelling):
    result = imported(graph(ERF[spelling], X)).model
    assert ops(result) == ["Gelu"]
    assert attribute(only(result, "Gelu"), "approximate") == "none"


@pytest.mark.parametrize("spelling", TANH)
def test_gelu_by_tanh(spelling):
    result = imported(graph(TANH[spelling], X)).model
    assert ops(result) == ["Gelu"]
    assert attribute(only(result, "Gelu"), "approximate") == "tanh"


OTHERS = {
    "silu by division": ("n = Neg(x) e = Exp(n) d = Add(1.0, e) y = Div(x, d)", ["Sigmoid", "Mul"]),
    "silu": ("s = Sigmoid(x) y = Mul(s, x)", ["Sigmoid", "Mul"]),
    "sigmoid": ("n = Neg(x) e = Exp(n) d = Add(e, 1.0) y = Reciprocal(d)", ["Sigmoid"]),
    "mish": ("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", ["Mish"]),
    "mish by logarithm": (
        "e = Exp(x) o = Add(e, 1.0) s = Log(o) t = Tanh(s) y = Mul(x, t)",
        ["Mish"],
    ),
    "softplus": ("e = Exp(x) o = Add(e, 1.0) y = Log(o)", ["Softplus"]),
    "softplus with a threshold": (
        "p = Softplus(x) c = Greater(x, 20.0) y = Where(c, x, p)",
        ["Softplus"],
    ),
    "hard swish, sixth first": (
        "s = Mul(x, 0.16666667) a = Add(x, 3.0) c = Clip(a, 0.0, 6.0) y = Mul(s, c)",
        ["HardSwish"],
    ),
    "hard swish by HardSigmoid": (
        "h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(h, x)",
        ["HardSwish"],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name):
    body, expected = OTHERS[name]
    assert ops(imported(graph(body, X)).model) == expected


def test_the_factor_of_a_quick_gelu_moves_into_its_neighbours():
    body = "p = Conv(x, w) k = Mul(p, 1.702) s = Sigmoid(k) q = Mul(p, s) y = Conv(q, u)"
    constants = {"w": normal(6, 5, 1), "u": normal(4, 6, 1, seed=1)}
    result = imported(graph(body, X, constants)).model
    assert ops(result) == ["Conv", "Sigmoid", "Mul", "Conv"]


def test_a_factor_outside_of_the_function_stays_a_product():
    body = "a = Mul(x, 0.70710677) b = Erf(a) c = Add(b, 1.0) d = Mul(x, c) y = Mul(d, row)"
    result = imported(graph(body, X, {"row": normal(5, 1)})).model
    assert sorted(ops(result)) in (["Gelu", "Mul"], ["Gelu", "Mul", "Mul"])


def test_a_value_inside_that_others_read_stays():
    result = imported(graph(ERF["torch, old"], X, outputs=["y", "b"])).model
    assert sorted(ops(result)) == ["Erf", "Gelu", "Mul"]


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul(x, 0.5) b = Erf(a) c = Add(b, 1.0) y = Mul(x, c)",
        "a = Mul(x, 0.70710677) b = Erf(a) c = Add(b, 1.0) y = Mul(z, c)",
        "a = Mul(x, row) b = Erf(a) c = Add(b, 1.0) y = Mul(x, c)",
        "s = Sigmoid(z) y = Mul(x, s)",
        "s = Sigmoid(x) t = Tanh(s) y = Mul(x, t)",
    ],
)
def test_other_functions_stay(body):
    inputs = {**X, "z": (2, 5, 8)}
    model = graph(body, inputs, {"row": normal(8)} if "row" in body else None)
    part, changes = applied(model, named_function.run)
    assert changes == 0, ops(part)


def test_a_function_that_is_nearly_gelu_is_named():
    body = "a = Mul(x, 0.71) b = Erf(a) c = Add(b, 1.0) d = Mul(x, c) y = Mul(d, 0.5)"
    (miss,) = import_model(graph(body, X)).near_misses
    assert (miss.rule, miss.node) == ("named_function", "Mul_3")
    assert "differs from Gelu by up to" in miss.reason
