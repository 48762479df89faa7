"""Root-mean-square, Euclidean and group normalisation, Expand and Unfold."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, attribute, imported, normal, only, ops
from importer_text import graph

from tilewright.importer import compare_outputs, import_model
from tilewright.importer.passes import expand, group_norm, unfold

X = {"x": (2, 6, 8)}
GAMMA = {"g": normal(8) + np.float32(2)}

RMS = {
    "torch, old": "s = Pow(x, 2.0) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-6) r = Sqrt(e)"
    " o = Div(1.0, r) n = Mul(x, o) y = Mul(g, n)",
    "torch, dynamo": "s = Pow(x, 2.0) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-6) r = Sqrt(e)"
    " o = Reciprocal(r) n = Mul(x, o) y = Mul(n, g)",
    "division": "s = Mul(x, x) v = ReduceMean<axes = [-1]>(s) e = Add(v, 1e-6) r = Sqrt(e)"
    " n = Div(x, r) y = Mul(n, g)",
    "power": "s = Mul(x, x) v = ReduceMean<axes = [2]>(s) e = Add(1e-6, v) r = Pow(e, -0.5)"
    " n = Mul(r, x) y = Mul(n, g)",
    "factor first": "s = Mul(x, x) v = ReduceMean<axes = [2]>(s) e = Add(v, 1e-6) r = Sqrt(e)"
    " o = Reciprocal(r) k = Mul(o, g) y = Mul(x, k)",
    "sum of squares": "w = ReduceSumSquare<axes = [2]>(x) v = Mul(w, 0.125) e = Add(v, 1e-6)"
    " r = Sqrt(e) n = Div(x, r) y = Mul(n, g)",
}


@pytest.mark.parametrize("spelling", RMS)
def test_rms_norm(spelling):
    result = imported(graph(RMS[spelling], X, GAMMA)).model
    assert ops(result) == ["RMSNormalization"]
    assert result.opset_imports[""] == 23
    norm = only(result, "RMSNormalization")
    assert attribute(norm, "axis") == 2
    assert attribute(norm, "epsilon") == pytest.approx(1e-6)


def test_a_sum_of_squares_with_epsilon_is_an_rms_norm():
    """TensorFlow's l2_normalize with its epsilon inside the root."""
    body = "s = Mul(x, x) v = ReduceSum(s, [2]) e = Add(v, 0.5) r = Sqrt(e) y = Div(x, r)"
    norm = only(imported(graph(body, X)).model, "RMSNormalization")
    assert attribute(norm, "epsilon") == pytest.approx(0.5 / 8)


def test_rms_norm_over_channels_stands_between_transposes():
    body = "s = Mul(x, x) v = ReduceMean<axes = [1]>(s) e = Add(v, 1e-6) r = Sqrt(e) n = Div(x, r)"
    constants = {"g": normal(6, 1) + np.float32(2)}
    result = imported(graph(f"{body} y = Mul(n, g)", X, constants)).model
    assert ops(result) == ["Transpose", "RMSNormalization", "Transpose"]


def test_the_operator_itself_passes():
    model = graph("y = RMSNormalization<axis = -1>(x, g)", X, GAMMA, opset=23)
    assert ops(imported(model).model) == ["RMSNormalization"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("s = Mul(x, x) v = ReduceMean<axes = [2]>(s) r = Sqrt(v) e = Add(r, 0.1) y = Div(x, e)",
         "is added to the root"),
        ("s = Mul(z, z) v = ReduceMean<axes = [2]>(s) e = Add(v, 0.1) r = Sqrt(e) y = Div(x, r)",
         "it divides x by the root of z"),
    ],
)  # fmt: skip
def test_what_is_nearly_an_rms_norm(body, reason):
    (miss,) = import_model(graph(body, {**X, "z": (2, 6, 8)})).near_misses
    assert miss.rule == "rms_norm" and reason in miss.reason


L2 = {
    "torch, old": "r = ReduceL2<axes = [-1]>(x) c = Clip(r, 1e-12) e = Expand(c, [2, 6, 8])"
    " y = Div(x, e)",
    "plain": "r = ReduceL2<axes = [2]>(x) y = Div(x, r)",
    "root of a sum": "s = Mul(x, x) v = ReduceSum(s, [2]) r = Sqrt(v) y = Div(x, r)",
    "tensorflow": "s = Mul(x, x) v = ReduceSum(s, [2]) m = Max(v, 1e-12) r = Sqrt(m)"
    " o = Reciprocal(r) y = Mul(x, o)",
    "added": "r = ReduceL2<axes = [2]>(x) a = Add(r, 1e-8) y = Div(x, a)",
    "paddle": "s = Pow(x, 2.0) v = ReduceSum(s, [2]) p = Pow(v, 0.5) m = Max(p, 1e-12)"
    " y = Div(x, m)",
}


@pytest.mark.parametrize("spelling", L2)
def test_l2_norm(spelling):
    model = graph(L2[spelling], X)
    result = imported(model).model
    assert ops(result) == ["LpNormalization"]
    assert (attribute(result.graph[0], "axis"), attribute(result.graph[0], "p")) == (2, 2)


def test_a_vector_of_zeros_stays_zero():
    model = graph(L2["torch, old"], X)
    x = normal(2, 6, 8)
    x[0, 2] = 0
    errors = compare_outputs(model, import_model(model).model, {"x": x})
    assert errors["y"].max_absolute < 1e-6


def test_l2_norm_over_several_axes():
    body = "r = ReduceL2<axes = [1, 2]>(x) y = Div(x, r)"
    assert ops(imported(graph(body, X)).model) == ["Reshape", "LpNormalization", "Reshape"]


def test_a_norm_that_is_bounded_noticeably_is_another_function():
    body = "r = ReduceL2<axes = [-1]>(x) c = Clip(r, 0.01) y = Div(x, c)"
    (miss,) = import_model(graph(body, X)).near_misses
    assert miss.rule == "l2_norm" and "a norm below 0.01" in miss.reason


IMAGE = {"x": (2, 6, 4, 5)}
AFFINE = {"g": normal(6, 1, 1) + np.float32(2), "b": normal(6, 1, 1, seed=1)}


def torch_group_norm(groups: int) -> str:
    ones, zeros = f"one{groups}", f"zero{groups}"
    return (
        f"r = Reshape(x, [0, {groups}, -1]) i = InstanceNormalization<epsilon = 1e-5>(r, {ones},"
        f" {zeros}) s = Reshape(i, [2, 6, 4, 5]) m = Mul(s, g) y = Add(m, b)"
    )


@pytest.mark.parametrize(
    ("groups", "expected"), [(1, "GroupNormalization"), (3, "GroupNormalization"),
                             (6, "InstanceNormalization")]
)  # fmt: skip
def test_group_norm(groups, expected):
    constants = {
        **AFFINE,
        f"one{groups}": np.ones(groups, np.float32),
        f"zero{groups}": np.zeros(groups, np.float32),
    }
    result = imported(graph(torch_group_norm(groups), IMAGE, constants)).model
    assert ops(result) == [expected]
    if groups < 6:
        assert attribute(result.graph[0], "num_groups") == groups


def test_group_norm_of_a_reshaped_tensor():
    """Another reshape before it has been merged with the one into groups."""
    body = torch_group_norm(3).replace("Reshape(x", "Reshape(p")
    constants = {**AFFINE, "one3": np.ones(3, np.float32), "zero3": np.zeros(3, np.float32)}
    model = graph(f"p = Reshape(x, [2, 6, 4, 5]) {body}", {"x": (2, 120)}, constants)
    assert ops(imported(model).model) == ["Reshape", "GroupNormalization"]


def test_a_group_norm_with_a_scale_per_group_stays():
    constants = {**AFFINE, "one3": normal(3), "zero3": np.zeros(3, np.float32)}
    model = graph(torch_group_norm(3), IMAGE, constants)
    assert applied(model, group_norm.run)[1] == 0
    (miss,) = import_model(model).near_misses
    assert "differs from group to group" in miss.reason


def test_an_expand_that_broadcasting_does_is_removed():
    body = "m = ReduceMax<axes = [2]>(x) e = Expand(m, [2, 6, 8]) y = Sub(x, e)"
    assert ops(imported(graph(body, X)).model) == ["ReduceMax", "Sub"]
    body = "m = ReduceMax<axes = [2]>(x) e = Expand(m, [2, 6, 8]) y = Mul(e, 0.5)"
    assert applied(graph(body, X), expand.run)[1] == 0


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (np.arange(8).reshape(4, 2), ["Reshape"]),
        (np.arange(8).reshape(4, 2).T, ["Reshape", "Transpose"]),
        (np.arange(8).reshape(1, 4, 1, 2), ["Reshape"]),
        (np.asarray([[0, 1, 2], [2, 3, 4]]), ["Gather"]),
        (np.asarray([[0, 2, 1, 3], [4, 5, 6, 7]]), ["Gather"]),
    ],
)
def test_patches_that_do_not_overlap_are_a_reshape(indices, expected):
    model = graph("y = Gather<axis = 2>(x, i)", X, {"i": indices.astype(np.int64)})
    assert ops(applied(model, unfold.run)[0]) == expected
