"""MatMul of two run-time operands, and of one and a batch of constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from float_models import Weights, lower, parse

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import catalog
from tilewright.ops.constant import Constant
from tilewright.ops.dense import Dense
from tilewright.ops.matmul import MatMul
from tilewright.ops.pattern import FloatGraph
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import Slice
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16
MOVING = (Transpose, Reshape, Slice)


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(6)


def product(a, b, y, body="y = MatMul(a, b)"):
    shapes = (",".join(map(str, s)) for s in (a, b, y))
    return "(float[{}] a, float[{}] b) => (float[{}] y) {{ {} }}".format(*shapes, body)


def computing(made):
    return [op for op in made.operators if op not in MOVING]


@pytest.mark.parametrize("a", [U8, S8, S16])
@pytest.mark.parametrize("b", [U8, S8, S16])
@pytest.mark.parametrize("y", [U8, S8, S16])
def test_types(a, b, y):
    model = parse(product((2, 3, 6), (2, 6, 5), (2, 3, 5)))
    made = lower(model, {"a": a, "b": b, "y": y}).check(0.6)
    assert computing(made) == [MatMul]
    assert made.sites[0].macs == 2 * 3 * 5 * 6


@pytest.mark.parametrize(
    ("a", "b", "y"),
    [
        ((3, 6), (6, 5), (3, 5)),
        ((2, 3, 6), (6, 5), (2, 3, 5)),
        ((3, 6), (2, 6, 5), (2, 3, 5)),
        ((2, 1, 3, 6), (4, 6, 5), (2, 4, 3, 5)),
        ((2, 1, 3, 6), (1, 4, 6, 1), (2, 4, 3, 1)),
        ((2, 2, 1, 3, 6), (1, 2, 2, 6, 5), (2, 2, 2, 3, 5)),
        ((6,), (2, 6, 5), (2, 5)),
        ((2, 4, 3, 6), (6,), (2, 4, 3)),
        ((6,), (6, 5), (5,)),
    ],
)
def test_broadcasting(a, b, y):
    lower(parse(product(a, b, y)), {"a": S8, "b": U8, "y": S8}).check()


@pytest.mark.parametrize("factor", ["Mul(p, c)", "Mul(c, p)", "Div(p, c)"])
def test_a_scale_behind_and_in_front_is_part_of_the_ratio(factor):
    body = f"q = Mul(a, d) p = MatMul(q, b) s = {factor} y = Relu(s)"
    model = parse(product((2, 3, 6), (2, 6, 5), (2, 3, 5), body), c=0.4, d=[-1.7])
    made = lower(model, {"a": U8, "b": S8, "y": U8}).check()
    assert computing(made) == [MatMul]
    assert len(made.sites[0].nodes) == 4
    apart = lower(model, {"a": U8, "q": S8, "b": S8, "p": S16, "y": U8}).check(1.5)
    assert computing(apart)[1] is MatMul and len(computing(apart)) == 3


def test_a_scale_of_which_something_else_reads_stays():
    body = "p = MatMul(a, b) s = Mul(p, c) y = Add(s, p)"
    model = parse(product((3, 6), (6, 5), (3, 5), body), c=0.4)
    made = lower(model, {"a": U8, "b": S8, "p": S16, "s": S16, "y": S8}).check(0.6)
    assert len(made.sites) == 3


HEADS = """(float[1,5,24] x) => (float[1,5,8] y) {
    e = MatMul(x, m) w = Reshape(e, split)
    t = Transpose<perm=[2,0,3,1,4]>(w) q = Slice(t, i0, i1, i0, i1)
    k = Slice(t, i1, i2, i0, i1) qs = Reshape(q, four) ks = Reshape(k, four)
    kt = Transpose<perm=[0,1,3,2]>(ks) s = MatMul(qs, kt) v = MatMul(s, ks)
    o = Transpose<perm=[0,2,1,3]>(v) y = Reshape(o, merged) }"""


def test_heads_are_split_and_merged_without_a_transpose():
    numbers = {"split": [1, 5, 3, 2, 4], "four": [1, 2, 5, 4], "merged": [1, 5, 8]}
    starts = {"i0": [0], "i1": [1], "i2": [2]}
    constants = {k: np.array(v, np.int64) for k, v in (numbers | starts).items()}
    model = parse(HEADS, m=np.eye(24), **constants)
    x = Encoding(S8, 0.02, 0)
    names = ("x", "e", "w", "t", "q", "k", "qs", "ks", "kt")
    made = lower(model, dict.fromkeys(names, x) | {"s": S16, "v": S16, "o": S16, "y": S16})
    made.check(2.0)
    assert computing(made) == [Dense, MatMul, MatMul]
    # One that brings the input from channels-last to token order; none for the heads.
    assert made.operators.count(Transpose) == 1


@pytest.mark.parametrize("text", [product((2, 3, 6), (2, 6, 5), (2, 3, 5))])
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("run_time", [S8, S16])
def test_a_batch_of_constants(text, side, run_time):
    other = "b" if side == "a" else "a"
    shape = {"a": "2,3,6", "b": "2,6,5"}
    text = f"(float[{shape[other]}] {other}) => (float[2,3,5] y) {{ y = MatMul(a, b) }}"
    constants = {side: drawn().normal(0, 1, tuple(map(int, shape[side].split(","))))}
    model = parse(text, **constants)
    made = lower(model, {other: run_time, "y": S8})
    assert sorted(computing(made), key=str) == [Constant, MatMul]
    made.check(0.6 if run_time is S16 else 2.0)


def test_a_batch_of_constants_takes_the_codes_of_the_file():
    model = parse("(float[2,3,6] a) => (float[2,3,5] y) { y = MatMul(a, b) }",
                  b=drawn().normal(0, 1, (2, 6, 5)))  # fmt: skip
    codes = Weights(U8, False, 100).quantize(drawn().normal(0, 1, (2, 6, 5)), 0)
    made = lower(model, {"a": S8, "y": S8}, biases={"b": codes})
    (stored,) = [n.op.data for n in made.graph.nodes if isinstance(n.op, Constant)]
    np.testing.assert_array_equal(stored, codes.codes)


def test_a_matrix_of_constants_is_a_dense_layer():
    model = parse("(float[2,3,6] a) => (float[2,3,5] y) { y = MatMul(a, b) }", b=np.ones((6, 5)))
    graph = ir.from_proto(model).graph
    assert catalog.match(graph[0], FloatGraph(graph)).kind == "Dense"
    assert Dense in lower(model, {"a": S8, "y": S8}).operators


def test_long_16_bit_sums_are_shifted_first():
    model = parse(product((2, 3000), (3000, 2), (2, 2)))
    samples = {n: drawn().uniform(-1, 1, s) for n, s in (("a", (2, 3000)), ("b", (3000, 2)))}
    made = lower(model, {"a": S16, "b": S16, "y": S16}, inputs=samples).check(0.6, tiles=False)
    assert made.graph.nodes[-1].op.pre_shift == (3000 * 32767**2 + 256).bit_length() - 38


def test_what_cannot_be_proven_is_refused():
    op = MatMul(0, (0, 1), 0, 1, 2, 0, 255)
    long = TensorType(U8, (1, 2**16), 1.0, 0), TensorType(U8, (2**16, 1), 1.0, 0)
    with pytest.raises(QuantizationError, match="can reach"):
        op.infer(long, "product")
    wide = TensorType(S16, (1, 4000), 1.0, 0), TensorType(S16, (4000, 1), 1.0, 0)
    with pytest.raises(QuantizationError, match="beyond R24"):
        op.infer(wide, "product")
    with pytest.raises(QuantizationError, match="terms"):
        op.infer((wide[0], long[1]), "product")
