"""Tokens, reshapes, transposes, slices and splits: one form of each movement."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, imported, normal, only, ops
from importer_text import graph

from tilewright.importer.passes import (
    dead,
    duplicates,
    layout,
    movement_late,
    slices,
    split,
    tokens,
    transpose_order,
)

TOKENS = {"x": (2, 6, 8)}


def net(body, constants=None, outputs=("y",), inputs=None, opset=18):
    return graph(body, inputs or TOKENS, constants, outputs, opset)


MATRIX = {"w": normal(8, 12), "t": normal(12, 8), "b": normal(12)}


@pytest.mark.parametrize(
    "product",
    [
        "Gemm(f, w, b)",
        "Gemm<transB = 1>(f, t, b)",
        "Gemm(f, w)",
    ],
)
def test_a_gemm_of_flattened_tokens_is_a_matmul(product):
    body = f"f = Reshape(x, [-1, 8]) g = {product} y = Reshape(g, [2, 6, 12])"
    result = imported(net(body, {k: v for k, v in MATRIX.items() if f" {k}" in product})).model
    assert ops(result) == (["MatMul", "Add"] if " b" in product else ["MatMul"])
    assert list(only(result, "MatMul").outputs[0].shape) == [2, 6, 12]


def test_heads_side_by_side_are_merged_before_the_product():
    body = "f = Reshape(x, [12, 32]) g = Gemm(f, w) y = Reshape(g, [3, 4, 2, 6])"
    result = imported(net(body, {"w": normal(32, 12)}, inputs={"x": (3, 4, 8, 4)})).model
    assert ops(result) == ["Reshape", "MatMul", "Reshape"]
    assert list(result.graph[0].outputs[0].shape) == [3, 4, 32]


def test_windows_are_taken_from_the_reshape_behind():
    body = (
        "r = Reshape(x, [1, 2, 3, 2, 4, 8]) t = Transpose<perm = [0, 1, 3, 2, 4, 5]>(r)"
        " f = Reshape(t, [48, 8]) g = Gemm(f, w) y = Reshape(g, [4, 12, 3, 4])"
    )
    result = imported(net(body, {"w": MATRIX["w"]}, inputs={"x": (1, 48, 8)})).model
    assert ops(result) == ["Reshape", "Transpose", "Reshape", "MatMul", "Reshape"]
    assert list(only(result, "MatMul").outputs[0].shape) == [4, 12, 12]


@pytest.mark.parametrize(
    ("shape", "flat"),
    [((1, 1, 8), [1, 8]), ((6, 8, 1, 1), [6, 8]), ((6, 4, 2), [6, 8]), ((4, 6, 2), [6, 8])],
)
def test_a_gemm_of_rows_stays(shape, flat):
    model = net(f"f = Reshape(x, {flat}) y = Gemm(f, w)", {"w": MATRIX["w"]}, inputs={"x": shape})
    assert applied(model, tokens.run)[1] == 0


@pytest.mark.parametrize(
    "product", ["Gemm<alpha = 2.0>(f, w)", "Gemm<transA = 1>(f, u)", "Gemm(f, w, rows)"]
)
def test_other_gemms_stay(product):
    constants = {"w": MATRIX["w"], "u": normal(12, 5), "rows": normal(12, 12)}
    used = {name: array for name, array in constants.items() if f" {name}" in product}
    model = net(f"f = Reshape(x, [12, 8]) y = {product}", used)
    assert applied(model, tokens.run)[1] == 0


def test_an_mlp_of_flattened_tokens():
    """As a simplifier writes it: the activation between two Gemms."""
    body = (
        "f = Reshape(x, [12, 8]) g = Gemm(f, w, b) s = Sigmoid(g) m = Mul(g, s)"
        " h = Gemm<transB = 1>(m, u) r = Reshape(h, [2, 6, 8]) y = Add(r, x)"
    )
    constants = {"w": MATRIX["w"], "b": MATRIX["b"], "u": normal(8, 12, seed=2)}
    result = imported(net(body, constants)).model
    assert ops(result) == ["MatMul", "Add", "Sigmoid", "Mul", "MatMul", "Add"]


FOUR = "[2, 6, 4, 2]"

SUNK = {
    "function": f"r = Reshape(x, {FOUR}) y = Tanh(r)",
    "scalar": f"r = Reshape(x, {FOUR}) y = Mul(r, 0.5)",
    "clamp": f"r = Reshape(x, {FOUR}) y = Clip(r, 0.0, 1.0)",
    "along the last axis": "r = Reshape(x, [12, 8]) y = Add(r, c)",
    "two": f"a = Reshape(x, {FOUR}) n = Neg(x) b = Reshape(n, {FOUR}) y = Sub(a, b)",
    "twice": f"r = Reshape(x, {FOUR}) y = Mul(r, r)",
    "cast": f"r = Reshape(x, {FOUR}) d = Cast<to = 11>(r) y = Cast<to = 1>(d)",
    "transpose": "t = Transpose<perm = [0, 2, 1]>(x) y = Gelu(t)",
    "two transposes": "a = Transpose<perm = [0, 2, 1]>(x) n = Neg(x)"
    " b = Transpose<perm = [0, 2, 1]>(n) y = Add(a, b)",
}


@pytest.mark.parametrize("case", SUNK)
def test_a_movement_goes_behind(case):
    constants = {"c": normal(8)} if case == "along the last axis" else None
    model = net(SUNK[case], constants, opset=20)
    part, changes = applied(model, movement_late.run)
    dead.run(part)
    kind = "Transpose" if "transpose" in case else "Reshape"
    assert changes in (1, 2) and ops(part)[-1] == kind and ops(part).count(kind) == 1


STAYING = {
    "along an axis that changes": f"r = Reshape(x, {FOUR}) y = Add(r, c)",
    "other readers": f"r = Reshape(x, {FOUR}) t = Tanh(r) y = Mul(t, r)",
    "another operand": f"r = Reshape(x, {FOUR}) y = Add(r, z)",
    "another shape": f"a = Reshape(x, {FOUR}) b = Reshape(z, {FOUR}) y = Add(a, b)",
    "along rows": "r = Reshape(x, [12, 8]) y = Softmax<axis = 0>(r)",
    "broadcast": "r = Reshape(x, [12, 8]) y = Add(r, k)",
    "channels of a transpose": "t = Transpose<perm = [1, 0, 2]>(x) y = Add(t, d)",
    "different transposes": "a = Transpose<perm = [1, 2, 0]>(s) b = Transpose<perm = [2, 1, 0]>(s)"
    " y = Add(a, b)",
}


@pytest.mark.parametrize("case", STAYING)
def test_a_reshape_stays_before(case):
    inputs = {**TOKENS, "z": (2, 6, 2, 4) if case == "another shape" else (2, 6, 4, 2)}
    inputs["s"] = (4, 4, 4)
    constants = {"c": normal(2), "k": normal(3, 12, 8), "d": normal(8)}
    used = {n: array for n, array in constants.items() if f", {n})" in STAYING[case]}
    assert applied(net(STAYING[case], used, inputs=inputs), movement_late.run)[1] == 0


@pytest.mark.parametrize(
    ("shape", "perm", "expected"),
    [
        ((6, 1, 8), "[1, 0, 2]", "Reshape"),
        ((1, 6, 1, 8), "[1, 2, 0, 3]", "Reshape"),
        ((6, 2, 8), "[1, 0, 2]", "Transpose"),
        ((1, 6, 8), "[0, 2, 1]", "Transpose"),
    ],
)
def test_a_transpose_that_moves_nothing_is_a_reshape(shape, perm, expected):
    model = net(f"y = Transpose<perm = {perm}>(x)", inputs={"x": shape})
    assert ops(applied(model, layout.run)[0]) == [expected]


ORDERED = {
    "pixels to tokens": ("r = Reshape(x, [2, 6, 20]) y = Transpose<perm = [0, 2, 1]>(r)",
                         (2, 6, 4, 5), ["Transpose", "Reshape"]),
    "tokens to pixels": ("t = Transpose<perm = [0, 2, 1]>(x) y = Reshape(t, [2, 6, 4, 5])",
                         (2, 20, 6), ["Reshape", "Transpose"]),
    "unit axes": ("r = Reshape(x, [6, 20]) y = Transpose<perm = [1, 0]>(r)", (1, 6, 4, 5),
                  ["Transpose", "Reshape"]),
    "no whole axes": ("r = Reshape(x, [2, 8, 15]) y = Transpose<perm = [0, 2, 1]>(r)",
                      (2, 6, 4, 5), ["Reshape", "Transpose"]),
    "read twice": ("r = Reshape(x, [6, 8]) t = Transpose<perm = [1, 0]>(r) y = MatMul(t, r)",
                   (2, 3, 8), ["Reshape", "Transpose", "MatMul"]),
    "many axes": ("r = Reshape(x, [4, 6, 5]) y = Transpose<perm = [0, 2, 1]>(r)",
                  (2, 2, 3, 2, 5), ["Reshape", "Transpose"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERED)
def test_the_order_of_reshapes_and_transposes(case):
    body, shape, expected = ORDERED[case]
    assert ops(applied(net(body, inputs={"x": shape}), transpose_order.run)[0]) == expected


def test_batches_of_heads_that_are_joined_and_cut_again():
    """As the newer exporter of PyTorch writes the transposed keys."""
    body = (
        "a = Reshape(x, [6, 4, 8]) t = Transpose<perm = [0, 2, 1]>(a) y = Reshape(t, [2, 3, 8, 4])"
    )
    assert ops(imported(net(body, inputs={"x": (2, 3, 4, 8)})).model) == ["Transpose"]


def test_parts_of_a_sequence_are_a_split():
    body = (
        "s = SplitToSequence<axis = -1, keepdims = 1>(x, l) a = SequenceAt(s, i)"
        " b = SequenceAt(s, j) y = Sub(a, b)"
    )
    constants = {"l": np.int64(4), "i": np.int64(0), "j": np.int64(-1)}
    assert ops(imported(net(body, constants)).model) == ["Split", "Sub"]
    body = "s = SplitToSequence<axis = 1, keepdims = 0>(x) y = SequenceAt(s, i)"
    assert ops(imported(net(body, {"i": np.int64(2)})).model) == ["Slice", "Reshape"]
    body = "n = Neg(x) s = SequenceConstruct(x, n) y = SequenceAt(s, i)"
    assert ops(imported(net(body, {"i": np.int64(1)})).model) == ["Neg"]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (1, ["Slice", "Reshape"]),
        (-1, ["Slice", "Reshape"]),
        ([2], ["Slice"]),
        ([1, 2, 3], ["Slice"]),
        ([0, 2, 4], ["Slice"]),
        ([-2, -1], ["Slice"]),
        ([3, 1], ["Gather"]),
        ([0, 1, 3], ["Gather"]),
        ([[0, 1]], ["Gather"]),
        ([2, 2], ["Gather"]),
    ],
)
def test_a_gather_of_neighbours_is_a_slice(index, expected):
    model = net("y = Gather<axis = 1>(x, i)", {"i": np.asarray(index, np.int64)})
    assert ops(applied(model, slices.run)[0]) == expected


def test_slices_along_different_axes_merge():
    body = "a = Slice(x, [0], [6], [1], [2]) y = Slice(a, [1], [8], [2], [2])"
    assert ops(applied(net(body), slices.run)[0]) == ["Slice"]
    body = "a = Slice(x, [1], [6], [1]) y = Slice(a, [1], [4], [1])"
    assert applied(net(body), slices.run)[1] == 0


def test_patch_merging_reads_its_four_parts_directly():
    """PyTorch slices rows, then columns; simplifiers write both at once."""
    rows = "e = Slice(x, [0], [6], [1], [2]) o = Slice(x, [1], [6], [1], [2])"
    parts = (("a", "e", 0), ("b", "o", 0), ("c", "e", 1), ("d", "o", 1))
    columns = [f"{n} = Slice({source}, [{start}], [6], [2], [2])" for n, source, start in parts]
    body = f"{rows} {' '.join(columns)} y = Concat<axis = -1>(a, b, c, d)"
    result = imported(net(body, inputs={"x": (1, 6, 6, 8)})).model
    assert ops(result) == ["Slice"] * 4 + ["Concat"]


PARTS = "a = Slice(x, [0], [3], [2]) b = Slice(x, [3], [4], [2]) c = Slice(x, [4], [8], [2])"


def test_slices_that_divide_a_tensor_are_a_split():
    part, changes = applied(net(PARTS, outputs=("a", "b", "c")), split.run)
    assert changes == 1 and ops(part) == ["Split"]
    assert [value.name for value in part.graph.outputs] == ["a", "b", "c"]


def test_queries_keys_and_values_taken_from_a_stack_are_a_split():
    body = (
        "r = Reshape(x, [2, 6, 2, 2, 2]) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
        " q = Gather<axis = 0>(t, i) k = Gather<axis = 0>(t, j) y = Add(q, k)"
    )
    constants = {"i": np.int64(0), "j": np.int64(1)}
    assert "Split" in ops(imported(net(body, constants)).model)


@pytest.mark.parametrize(
    "body",
    [
        PARTS.replace("[4], [8]", "[5], [8]"),
        PARTS.replace("[0], [3]", "[1], [3]"),
        PARTS.replace("[4], [8]", "[3], [8]"),
        "a = Slice(x, [0], [8], [2], [2]) b = Slice(x, [1], [8], [2], [2])",
        "a = Slice(x, [0], [3], [2]) b = Slice(x, [3], [6], [1])",
    ],
)
def test_other_slices_stay(body):
    outputs = ("a", "b", "c") if "c =" in body else ("a", "b")
    assert applied(net(body, outputs=outputs), split.run)[1] == 0


@pytest.mark.parametrize(
    "body",
    [
        "a = Slice(x, [2], [6], [1]) b = Slice(x, [0], [2], [1]) y = Concat<axis = 1>(a, b)",
        "b = Slice(x, [0], [2], [1]) a = Slice(x, [2], [6], [1]) y = Concat<axis = 1>(a, b)",
        "b, a = Split<axis = 1>(x, [2, 4]) y = Concat<axis = 1>(a, b)",
    ],
)
def test_a_rotation_is_two_slices_and_a_concat(body):
    result = imported(net(body)).model
    assert ops(result) == ["Slice", "Slice", "Concat"]


def test_equal_nodes_become_one():
    body = (
        "m = ReduceMean(x, [2]) n = ReduceMean(x, [-1]) a = Sub(x, m) b = Sub(x, n) y = Mul(a, b)"
    )
    part, changes = applied(net(body), duplicates.run)
    assert changes == 2 and ops(part) == ["ReduceMean", "Sub", "Mul"]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("a = Mul(x, 0.5) b = Mul(x, 0.25) y = Add(a, b)", ("y",)),
        ("a = Softmax<axis = 1>(x) b = Softmax<axis = 2>(x) y = Add(a, b)", ("y",)),
        ("a = RandomNormalLike(x) b = RandomNormalLike(x)", ("a", "b")),
        ("a = Tanh(x) b = Tanh(x)", ("a", "b")),
    ],
)
def test_different_nodes_stay(body, outputs):
    model = net(body, outputs=outputs)
    part = model.clone()
    assert duplicates.run(part).changes == 0
