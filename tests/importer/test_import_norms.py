"""Layer, instance and group normalisation in the spellings of several exporters."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, attribute, imported, normal, only, ops
from importer_text import graph

from tilewright.importer import import_model
from tilewright.importer.passes import layer_norm

X = {"x": (2, 6, 8)}
AFFINE = {"g": normal(8) + np.float32(2), "b": normal(8, seed=1)}

TAIL = "n = Mul(q, g) y = Add(n, b)"
HEAD = "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m)"

LAST_AXIS = {
    "torch, old": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-5)"
    f" r = Sqrt(e) q = Div(d, r) {TAIL}",
    "two subtractions": "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) s = Pow(d, 2.0)"
    " v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-12) r = Sqrt(e) f = Sub(x, m) q = Div(f, r)"
    f" {TAIL}",
    "tensorflow": "m = ReduceMean<axes = [2]>(x) d = Sub(x, m) s = Mul(d, d)"
    " v = ReduceMean<axes = [2]>(s) e = Add(v, 0.001) r = Sqrt(e) i = Reciprocal(r) k = Mul(i, g)"
    " p = Mul(x, k) t = Mul(m, k) u = Sub(b, t) y = Add(p, u)",
    "no shift": f"{HEAD} s = Mul(d, d) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-5)"
    " i = Pow(e, -0.5) q = Mul(d, i) y = Mul(q, g)",
    "sums": "t = ReduceSum<keepdims = 0>(x, [-1]) a = Mul(t, 0.125) m = Unsqueeze(a, [-1])"
    " d = Sub(x, m) s = Mul(d, d) w = ReduceSum(s, [2]) v = Mul(0.125, w) e = Add(1e-5, v)"
    f" r = Sqrt(e) o = Div(1.0, r) q = Mul(o, d) {TAIL}",
    "jax": "t = ReduceSum<keepdims = 0>(x, [2]) m = Mul(t, 0.125) h = Mul(x, x)"
    " w = ReduceSum<keepdims = 0>(h, [2]) f = Mul(w, 0.125) k = Mul(m, m) v = Sub(f, k)"
    " p = Max(v, 0.0) z = Unsqueeze(p, [2]) e = Add(z, 1e-6) r = Sqrt(e) i = Reciprocal(r)"
    " j = Mul(i, g) a = Unsqueeze(m, [2]) d = Sub(x, a) n = Mul(d, j) y = Add(n, b)",
    "factor first": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-5)"
    " r = Sqrt(e) a = Mul(g, d) q = Div(a, r) y = Add(q, b)",
    "negated mean": "m = ReduceMean<axes = [-1]>(x) a = Neg(m) d = Add(a, x) s = Mul(d, d)"
    f" v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-5) r = Sqrt(e) q = Div(d, r) {TAIL}",
}


@pytest.mark.parametrize("spelling", LAST_AXIS)
def test_layer_norm(spelling):
    result = imported(graph(LAST_AXIS[spelling], X, AFFINE)).model
    assert ops(result) == ["LayerNormalization"], ops(result)
    norm = only(result, "LayerNormalization")
    assert attribute(norm, "axis") == 2 and norm.inputs[1].shape[0] == 8


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
def test_layer_norm_of_every_opset(opset):
    mean = "ReduceMean<axes = [-1]>({})" if opset < 18 else "ReduceMean({}, [-1])"
    body = (
        f"m = {mean.format('x')} d = Sub(x, m) s = Pow(d, 2.0) v = {mean.format('s')}"
        f" e = Add(v, 1e-5) r = Sqrt(e) q = Div(d, r) {TAIL}"
    )
    assert ops(imported(graph(body, X, AFFINE, opset=opset)).model) == ["LayerNormalization"]


def test_without_factor_and_shift():
    body = LAST_AXIS["torch, old"].replace(TAIL, "").replace("q = Div", "y = Div")
    norm = only(imported(graph(body, X)).model, "LayerNormalization")
    assert len(norm.inputs) == 2 and (norm.inputs[1].const_value.numpy() == 1).all()


def test_bessels_correction_goes_into_epsilon_and_factor():
    corrected = "c = Mul(v, 1.1428572) e = Add(c, 0.5)"
    body = LAST_AXIS["torch, old"].replace("e = Add(v, 1e-5)", corrected)
    norm = only(imported(graph(body, X, AFFINE)).model, "LayerNormalization")
    assert attribute(norm, "epsilon") == pytest.approx(0.5 * 7 / 8)


def over(axes: str) -> str:
    """As ConvNeXt's LayerNorm2d is spelled."""
    return (
        f"m = ReduceMean<axes = {axes}>(x) d = Sub(x, m) s = Pow(d, 2.0)"
        f" v = ReduceMean<axes = {axes}>(s) e = Add(v, 1e-6) r = Sqrt(e) q = Div(d, r) {TAIL}"
    )


IMAGE = {"x": (2, 6, 5, 4)}


def column(*shape, seed=0):
    return normal(*shape, seed=seed) + np.float32(2)


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        ("[1]", (6, 1, 1), ["Transpose", "LayerNormalization", "Transpose"]),
        ("[2, 3]", (6, 1, 1), ["InstanceNormalization"]),
        ("[1, 2, 3]", (6, 1, 1), ["GroupNormalization"]),
        ("[2, 3]", (5, 4), ["Reshape", "LayerNormalization", "Reshape"]),
        ("[1, 2, 3]", (6, 5, 4), ["Reshape", "LayerNormalization", "Reshape"]),
        ("[3]", (4,), ["LayerNormalization"]),
        ("[3]", (6, 1, 1), ["LayerNormalization", "Mul", "Add"]),
    ],
)
def test_axes_of_images(axes, shape, expected):
    constants = {"g": column(*shape), "b": column(*shape, seed=1)}
    assert ops(imported(graph(over(axes), IMAGE, constants)).model) == expected


def test_the_affine_part_moves_back_through_transposes():
    """PyTorch's permuted LayerNorm, with the factor behind the second permutation."""
    body = (
        "t = Transpose<perm = [0, 2, 3, 1]>(x) m = ReduceMean<axes = [-1]>(t) d = Sub(t, m)"
        " s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-6) r = Sqrt(e) q = Div(d, r)"
        " u = Transpose<perm = [0, 3, 1, 2]>(q) n = Mul(u, g) y = Add(n, b)"
    )
    constants = {"g": column(6, 1, 1), "b": column(6, 1, 1, seed=1)}
    result = imported(graph(body, IMAGE, constants)).model
    assert ops(result) == ["Transpose", "LayerNormalization", "Transpose"]


def test_a_factor_over_other_axes_stays():
    body = LAST_AXIS["torch, old"]
    result = imported(graph(body, X, {"g": column(6, 8), "b": normal(6, 8)})).model
    assert ops(result) == ["LayerNormalization", "Mul", "Add"]


def test_a_deviation_that_others_read_stays():
    result = imported(graph(LAST_AXIS["torch, old"], X, AFFINE, outputs=["y", "d"])).model
    assert sorted(ops(result)) == ["LayerNormalization", "ReduceMean", "Sub"]


MISSES = {
    "added to the deviation": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s) r = Sqrt(v)"
    f" e = Add(r, 1e-5) q = Div(d, e) {TAIL}",
    "its mean is over axes [1]": "a = ReduceMean<axes = [1]>(x) c = Sub(x, a)"
    " m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s)"
    f" e = Add(v, 1e-5) r = Sqrt(e) q = Div(c, r) {TAIL}",
    "its mean is not subtracted": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s)"
    f" e = Add(v, 1e-5) r = Sqrt(e) q = Div(x, r) {TAIL}",
    "it divides z by": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s)"
    f" e = Add(v, 1e-5) r = Sqrt(e) q = Div(z, r) {TAIL}",
    "bounded by": f"{HEAD} s = Pow(d, 2.0) v = ReduceMean<axes = [-1]>(s)"
    f" e = Max(v, 0.01) r = Sqrt(e) q = Div(d, r) {TAIL}",
}


@pytest.mark.parametrize("reason", MISSES)
def test_what_is_nearly_a_layer_norm_says_why_not(reason):
    model = graph(MISSES[reason], {**X, "z": (2, 6, 8)}, AFFINE)
    assert applied(model, layer_norm.run)[1] == 0
    (miss,) = import_model(model).near_misses
    assert miss.rule == "layer_norm" and reason in miss.reason, miss


def test_a_root_that_does_not_broadcast_along_its_axes_is_another_function():
    body = (
        "m = ReduceMean<axes = [-1], keepdims = 0>(x) k = ReduceMean<axes = [-1]>(x) d = Sub(x, k)"
        " s = Pow(d, 2.0) v = ReduceMean<axes = [-1], keepdims = 0>(s) e = Add(v, 1e-5)"
        " r = Sqrt(e) y = Div(d, r)"
    )
    assert "LayerNormalization" not in ops(imported(graph(body, {"x": (5, 5, 5)})).model)
