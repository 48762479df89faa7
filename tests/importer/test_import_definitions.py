"""Einsum, ONNX's Attention and other operators that others define, and joint projections."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, imported, normal, ops
from importer_text import graph

from tilewright.importer.passes import split_early

A, B, M = (2, 3, 4, 5), (2, 6, 4, 5), (4, 5, 6)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ij,kj->ki", [(3, 4), (5, 4)]),
        ("bqhd,bkhd->bhqk", [A, B]),
        ("bhqk,bkhd->bqhd", [(2, 4, 3, 6), B]),
        ("bqhd,hdc->bqc", [A, M]),
        ("btc,chd->bthd", [(2, 3, 4), (4, 5, 6)]),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("...d,dk->...k", [(2, 3, 4), (4, 6)]),
        ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
        ("bi,bj->bij", [(2, 3), (2, 4)]),
        ("i,j->ji", [(3,), (4,)]),
        ("bij,bij->bij", [(2, 3, 4), (2, 3, 4)]),
        ("bij,bij->b", [(2, 3, 4), (2, 3, 4)]),
        ("ijk,jl->il", [(2, 3, 4), (3, 5)]),
        ("i,i->", [(4,), (4,)]),
        ("bij->bji", [(2, 3, 4)]),
        ("bij->j", [(2, 3, 4)]),
        ("...i->i...", [(2, 3, 4)]),
        ("b i j, b j k -> b i k", [(2, 3, 4), (2, 4, 5)]),
    ],
)
@pytest.mark.parametrize("constant", [None, 0, 1])
def test_einsum(equation, shapes, constant):
    names = ["x", "z"][: len(shapes)]
    constants = {}
    if constant is not None and len(names) == 2:
        constants[names[constant]] = normal(*shapes[constant])
    inputs = {n: shape for n, shape in zip(names, shapes, strict=True) if n not in constants}
    body = f'y = Einsum<equation = "{equation}">({", ".join(names)})'
    assert "Einsum" not in ops(imported(graph(body, inputs, constants)).model)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii->i", [(3, 3)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)])],
)
def test_einsums_that_stay(equation, shapes):
    names = ["x", "z", "w"][: len(shapes)]
    body = f'y = Einsum<equation = "{equation}">({", ".join(names)})'
    assert ops(imported(graph(body, dict(zip(names, shapes, strict=True)))).model) == ["Einsum"]


TOKENS = {"x": (2, 6, 16)}
PROJECTIONS = "q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)"
WEIGHTS = {f"w{name}": normal(16, 16, seed=seed) for seed, name in enumerate("qkv")}
HEADS = "q_num_heads = 4, kv_num_heads = 4"
CORE = ["MatMul", "Softmax", "MatMul", "Transpose", "Reshape"]


@pytest.mark.parametrize(
    ("attributes", "core"),
    [
        ("", CORE),
        (", scale = 0.3", CORE),
        (", is_causal = 1", ["MatMul", "Add", *CORE[1:]]),
        (", softcap = 2.0", ["MatMul", "Tanh", "Mul", *CORE[1:]]),
    ],
)
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_attention(attributes, core, opset):
    body = f"{PROJECTIONS} y = Attention<{HEADS}{attributes}>(q, k, v)"
    result = imported(graph(body, TOKENS, WEIGHTS, opset=opset)).model
    assert ops(result)[-len(core) :] == core and result.opset_imports[""] == 21
    assert ops(result).count("Mul") == core.count("Mul"), "the scale is in the projections"


def test_two_attentions_with_masks_and_shared_heads():
    weights = {**WEIGHTS, "wk": normal(16, 8), "wv": normal(16, 8, seed=1), "m": normal(6, 6)}
    attention = "Attention<q_num_heads = 4, kv_num_heads = 2>"
    body = f"{PROJECTIONS} a = {attention}(q, k, v, m) y = {attention}(a, k, v)"
    result = imported(graph(body, TOKENS, weights, opset=23)).model
    assert ops(result).count("Softmax") == 2 and "Attention" not in ops(result)


def test_rotary_embedding():
    constants = {"c": normal(6, 2), "s": normal(6, 2, seed=1)}
    body = "p = Identity(x) y = RotaryEmbedding<num_heads = 4>(p, c, s)"
    constants = {"c": normal(2, 6, 2), "s": normal(2, 6, 2, seed=1)}
    result = imported(graph(body, TOKENS, constants, opset=23)).model
    assert "RotaryEmbedding" not in ops(result) and result.opset_imports[""] == 21


JOINT = {"w": normal(16, 48), "b": normal(48)}
STACKS = {
    "timm": "r = Reshape(a, [2, 6, 3, 4, 4]) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
    " q, k, v = Split<axis = 0>(t, [1, 1, 1]) qs = Squeeze(q, [0]) ks = Squeeze(k, [0])"
    " vs = Squeeze(v, [0])",
    "gathered": "r = Reshape(a, [2, 6, 3, 4, 4]) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)"
    " qs = Gather<axis = 0>(t, i0) ks = Gather<axis = 0>(t, i1) vs = Gather<axis = 0>(t, i2)",
    "chunks": "q, k, v = Split<axis = 2>(a, [16, 16, 16]) qr = Reshape(q, [2, 6, 4, 4])"
    " kr = Reshape(k, [2, 6, 4, 4]) vr = Reshape(v, [2, 6, 4, 4])"
    " qs = Transpose<perm = [0, 2, 1, 3]>(qr) ks = Transpose<perm = [0, 2, 1, 3]>(kr)"
    " vs = Transpose<perm = [0, 2, 1, 3]>(vr)",
}


@pytest.mark.parametrize("stack", STACKS)
def test_queries_keys_and_values_of_a_joint_projection(stack):
    indices = {f"i{n}": np.int64(n) for n in range(3)} if stack == "gathered" else {}
    body = (
        f"p = MatMul(x, w) a = Add(p, b) {STACKS[stack]} kt = Transpose<perm = [0, 1, 3, 2]>(ks)"
        " s = MatMul(qs, kt) f = Softmax(s) y = MatMul(f, vs)"
    )
    result = imported(graph(body, TOKENS, {**JOINT, **indices})).model
    counts = {op: ops(result).count(op) for op in set(ops(result))}
    assert counts == {
        "MatMul": 3, "Add": 1, "Split": 1, "Reshape": 3, "Transpose": 3, "Softmax": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "moves",
    [
        "r = Reshape(a, [2, 6, 4, 12]) q, k, v = Split<axis = 3>(r, [4, 4, 4])",
        "r = Relu(a) q, k, v = Split<axis = 2>(r, [16, 16, 16])",
        "r = Reshape(a, [2, 2, 3, 48]) q, k, v = Split<axis = 2>(r, [1, 1, 1])",
    ],
)
def test_splits_that_stay(moves):
    model = graph(f"p = MatMul(x, w) a = Add(p, b) {moves}", TOKENS, JOINT, ["q", "k", "v"])
    assert applied(model, split_early.run)[1] == 0


def test_a_split_of_tokens_moves_too():
    moves = "r = Reshape(a, [2, 2, 3, 48]) q, k = Split<axis = 1>(r, [1, 1])"
    model = graph(f"p = MatMul(x, w) a = Add(p, b) {moves}", TOKENS, JOINT, ["q", "k"])
    part, changes = applied(model, split_early.run)
    assert changes == 1 and ops(part) == ["MatMul", "Add", "Split", "Reshape", "Reshape"]
