"""Attention as one operator: what is recognised, how it is stored, how close it comes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import pytest
from float_models import lower, parse
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import numerics
from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import attention, scores
from tilewright.ops.attention import Attention
from tilewright.ops.dense import Dense
from tilewright.ops.matmul import MatMul
from tilewright.ops.pattern import FloatGraph
from tilewright.ops.protocol import Span, whole
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import Slice
from tilewright.ops.softmax import Softmax
from tilewright.ops.transpose import Transpose
from tilewright.quantize.sites import match_sites

U8, S8, S16 = DType.U8, DType.S8, DType.S16
MOVING = (Transpose, Reshape, Slice)
SCORES = Encoding(S16, 2.0**-10, 0)


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(7)


def computing(made):
    return [op for op in made.operators if op not in MOVING]


PLAIN = "float[2,3,7,4] q, float[2,3,4,9] k, float[2,3,9,5] v"


def plain(body, inputs=PLAIN, **constants):
    return parse(f"({inputs}) => (float[2,3,7,5] y) {{ {body} y = MatMul(p, v) }}", **constants)


def near(made, steps_of_v=1.0):
    """Within a step of the values, and half a step of the result."""
    v, y = (made.encodings[n].scale for n in "vy")
    return made.check(0.5 + steps_of_v * v / y + 0.01)


@pytest.mark.parametrize("q", [U8, S8, S16])
@pytest.mark.parametrize("k", [U8, S8, S16])
@pytest.mark.parametrize(("v", "y"), [(U8, U8), (S8, S16), (S16, S8), (S16, S16)])
def test_types(q, k, v, y):
    model = plain("s = MatMul(q, k) c = Mul(s, f) p = Softmax(c)", f=0.5)
    made = lower(model, {"q": q, "k": k, "v": v, "c": SCORES, "y": y})
    assert computing(made) == [Attention]
    # Beside 16-bit values, weights of 8 bits count.
    near(made, 1.0 if v is not S16 else 200.0)
    (site,) = made.sites
    assert site.inner.name == "c" and site.macs == 2 * 3 * 7 * 9 * (4 + 5)


BODIES = {
    "nothing": "c = MatMul(q, k) p = Softmax(c)",
    "scale": "s = MatMul(q, k) c = Div(s, f) p = Softmax(c)",
    "scaled queries": "r = Mul(q, f) c = MatMul(r, k) p = Softmax(c)",
    "bias": "s = MatMul(q, k) c = Add(s, heads) p = Softmax(c)",
    "bias first": "s = MatMul(q, k) c = Add(rows, s) p = Softmax(c)",
    "difference": "s = MatMul(q, k) c = Sub(s, heads) p = Softmax(c)",
    "scaled sum": "s = MatMul(q, k) t = Add(s, heads) c = Mul(f, t) p = Softmax(c)",
    "two": "s = MatMul(q, k) t = Add(s, heads) u = Mul(t, f) c = Add(u, keys) p = Softmax(c)",
    "masked": "s = MatMul(q, k) t = Mul(s, f) c = Add(t, mask) p = Softmax(c)",
}


@pytest.mark.parametrize("name", BODIES)
def test_what_may_lie_between(name):
    rng = drawn()
    mask = np.where(rng.random((2, 1, 7, 9)) < 0.3, -np.inf, 0.0)
    mask[..., 0] = 0.0
    model = plain(
        BODIES[name], f=0.7, heads=rng.normal(0, 1, (3, 7, 9)), rows=rng.normal(0, 1, (1, 1, 7, 1)),
        keys=rng.normal(0, 1, 9), mask=np.maximum(mask, -3.4e38),
    )  # fmt: skip
    made = near(lower(model, {"q": S8, "k": U8, "v": S8, "c": SCORES, "y": S8}))
    assert computing(made) == [Attention]
    op = next(n.op for n in made.graph.nodes if isinstance(n.op, Attention))
    kinds = {"nothing": None, "masked": np.int32}
    if name in kinds or "scale" not in name:
        expected = kinds.get(name, np.int16)
        assert expected is None or op.bias.dtype == expected


@pytest.mark.parametrize("shape", ["2,1,1,9", "1,1,7,9", "2,3,7,9", "1,1,1,1", "9"])
@pytest.mark.parametrize("m", [U8, S8, S16])
def test_a_run_time_mask(shape, m):
    model = plain(
        "s = MatMul(q, k) t = Mul(s, f) b = Add(t, keys) c = Add(b, m) p = Softmax(c)",
        f"{PLAIN}, float[{shape}] m", f=0.5, keys=drawn().normal(0, 1, 9),
    )  # fmt: skip
    shape = tuple(map(int, shape.split(",")))
    mask = np.where(drawn().random(shape) < 0.3, -24.0, 0.0)
    types = {"q": S8, "k": S8, "v": U8, "m": m, "c": SCORES, "y": S8}
    made = near(lower(model, types, inputs={"m": mask}), 2.0)
    assert computing(made) == [Attention]


VIT = """(float[1,7,24] x) => (float[1,7,8] y) {
    e = MatMul(x, w) r = Reshape(e, split) t = Transpose<perm=[2,0,3,1,4]>(r)
    a, b, c = Split<axis=0>(t, each) q = Reshape(a, four) k = Reshape(b, four) v = Reshape(c, four)
    u = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, u) z = Mul(s, f) p = Softmax(z)
    o = MatMul(p, v) m = Transpose<perm=[0,2,1,3]>(o) n = Reshape(m, merged) y = MatMul(n, w2) }"""


def test_heads_cost_no_transposes():
    """As exported from timm: one projection, split and merged heads."""
    numbers = {
        "split": [1, 7, 3, 2, 4],
        "each": [1, 1, 1],
        "four": [1, 2, 7, 4],
        "merged": [1, 7, 8],
    }
    model = parse(
        VIT, w=np.eye(24), w2=np.eye(8), f=0.5,
        **{k: np.array(v, np.int64) for k, v in numbers.items()},
    )  # fmt: skip
    same = Encoding(S8, 0.03, 0)
    types = dict.fromkeys(("x", "e", "r", "t", "a", "b", "c", "q", "k", "v", "u"), same)
    types |= {"z": SCORES} | dict.fromkeys(("o", "m", "n"), S16) | {"y": S16}
    made = lower(model, types)
    assert computing(made) == [Dense, Attention, Dense]
    # One brings the input from channels-last order to tokens; none moves heads.
    assert made.operators.count(Transpose) == 1
    (node,) = [n for n in made.graph.nodes if isinstance(n.op, Attention)]
    assert made.graph.tensors[node.outputs[0]].shape == (1, 7, 2, 4)
    y = made.encodings["y"].scale
    made.check(2 * same.scale / y + 2)


SWIN = """(float[8,2,9,4] q, float[8,2,4,9] k, float[8,2,9,4] v) => (float[8,2,9,4] y) {
    s = MatMul(q, k) c = Mul(s, f) a = Add(c, positions) w = Reshape(a, five)
    m = Add(w, windows) b = Reshape(m, four) p = Softmax(b) y = MatMul(p, v) }"""


def shifted_windows(rng):
    """A mask of four windows of which two are alike, and positions of two heads."""
    windows = np.where(rng.random((1, 3, 1, 9, 9)) < 0.3, -100.0, 0.0)
    windows[..., range(9), range(9)] = 0
    windows = windows[:, [0, 0, 1, 2]]
    return windows, rng.normal(0, 1, (1, 2, 9, 9))


def test_the_mask_of_shifted_windows():
    """Two images of four windows: biases and masks are summed, and equal ones stored once."""
    windows, positions = shifted_windows(drawn())
    model = parse(
        SWIN, f=0.5, positions=positions, windows=windows,
        five=np.array([2, 4, 2, 9, 9]), four=np.array([8, 2, 9, 9]),
    )  # fmt: skip
    made = near(lower(model, {"q": S8, "k": S8, "v": S8, "b": SCORES, "y": S8}))
    assert computing(made) == [Attention]
    op = next(n.op for n in made.graph.nodes if isinstance(n.op, Attention))
    assert op.bias.shape == (3 * 2 * 9, 9) and len(op.bias_first) == 16
    by_window = np.array(op.bias_first).reshape(op.bias_batch)
    assert sorted(op.bias_batch) == [2, 8]
    assert len(np.unique(by_window)) == 6


BERT = """(float[1,6,8] x, float[1,1,1,6] mask) => (float[1,6,8] y) {
    a = MatMul(x, wq) b = MatMul(x, wk) c = MatMul(x, wv)
    d = Reshape(a, heads) q = Transpose<perm=[0,2,1,3]>(d)
    e = Reshape(b, heads) k = Transpose<perm=[0,2,3,1]>(e)
    g = Reshape(c, heads) v = Transpose<perm=[0,2,1,3]>(g)
    s = MatMul(q, k) t = Div(s, f) z = Add(t, mask) p = Softmax(z) o = MatMul(p, v)
    m = Transpose<perm=[0,2,1,3]>(o) y = Reshape(m, merged) }"""


def test_the_mask_of_padded_tokens():
    model = parse(
        BERT, f=2.0, heads=np.array([1, 6, 2, 4]), merged=np.array([1, 6, 8]),
        **{w: drawn().normal(0, 0.5, (8, 8)) for w in ("wq", "wk", "wv")},
    )  # fmt: skip
    same = Encoding(S8, 0.04, 0)
    types = {"x": S8, "mask": Encoding(U8, 30 / 255, 255), "z": SCORES}
    types |= dict.fromkeys(("a", "b", "c", "d", "e", "g", "q", "k", "v"), same)
    mask = np.array([0, 0, 0, -1e4, 0, -1e4]).reshape(1, 1, 1, 6)
    made = lower(model, types | dict.fromkeys(("o", "m", "y"), S16), inputs={"mask": mask})
    assert computing(made) == [Dense, Dense, Dense, Attention]
    made.check(3 * same.scale / made.encodings["y"].scale + 2)


@pytest.mark.parametrize(
    "body",
    [
        "c = MatMul(q, k) p = Softmax<axis=2>(c)",
        "c = MatMul(q, k) t = Tanh(c) p = Softmax(t)",
        "c = MatMul(q, k) r = Softmax(c) p = Relu(r)",
        "c = MatMul(q, k) t = Add(c, c) p = Softmax(t)",
        "c = MatMul(q, k) t = Sub(heads, c) p = Softmax(t)",
        "c = MatMul(q, k) t = Add(c, m) u = Add(t, m) p = Softmax(u)",
    ],
)
def test_what_is_no_attention(body):
    model = plain(body, f"{PLAIN}, float[2,1,1,9] m", heads=np.ones((3, 7, 9)))
    sites = match_sites(FloatGraph(ir.from_proto(model).graph)).sites
    assert "Attention" not in [s.kind for s in sites]
    assert [s.kind for s in sites].count("MatMul") == 2


def test_quantized_probabilities_stay_apart():
    model = plain("c = MatMul(q, k) p = Softmax(c)")
    types = {"q": S8, "k": S8, "v": S8, "c": SCORES, "y": S8}
    apart = lower(model, types | {"p": Encoding(U8, 1 / 256, 0)})
    assert computing(apart) == [MatMul, Softmax, MatMul]
    narrow = lower(model, types | {"c": Encoding(S8, 0.05, 0), "p": Encoding(U8, 1 / 256, 0)})
    assert computing(narrow) == [MatMul, Softmax, MatMul]


def test_a_layout_that_most_operands_share_is_kept():
    """Queries and values come as [batch, rows, heads, depth], keys need a copy."""
    graph = lower(
        plain("c = MatMul(q, k) p = Softmax(c)"), {"q": S8, "k": S8, "v": S8, "c": SCORES, "y": S8}
    ).graph
    node = graph.nodes[-1]
    assert [graph.tensors[n].shape for n in node.inputs] == [
        (2, 7, 3, 4),
        (2, 9, 3, 4),
        (2, 9, 3, 5),
    ]
    assert node.op.row_axis == 1


def test_tiles_take_the_rows_of_constants_that_they_need():
    bias = np.zeros((4 * 7, 9), np.int16)
    op = Attention(1, 0, 0, 62, 0, 62, 0, 62, 0, 62, 1, (2, 3), (0, 7, 14, 0, 7, 21), bias)
    types = [TensorType(S8, (2, n, 3, 4), 1.0, 0) for n in (7, 9, 9)]
    (shape,) = op.infer(types, "op")
    assert op.constant_rows("bias", whole(shape)) == Span(0, 28)
    first_head = (Span(0, 2), Span(2, 4), Span(0, 1), Span(0, 4))
    assert op.constant_rows("bias", first_head) == Span(2, 4)
    assert op.constant_rows("bias", (Span(1, 2), Span(0, 7), Span(2, 3), Span(0, 4))) == Span(
        21, 28
    )
    q, k, v = op.needs(first_head, types, types[0])
    assert q == first_head and k == v == (Span(0, 2), Span(0, 9), Span(0, 1), Span(0, 4))
    assert op.workspace(first_head, types, types[0]) == 2 * 2 * 9


def test_the_scratch_of_long_rows_is_bounded():
    types = [TensorType(S8, (4096, 64), 1.0, 0)] * 3
    op = Attention(0, 0, 0, 62, 0, 62, 0, 62, 0, 62, 0, (), (), None)
    assert op.workspace(whole((4096, 64)), types, types[0]) == 1 << 17


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (((4, 2), (scores.LONGEST + 1, 2), (scores.LONGEST + 1, 2)), "keys"),
        (((4, 2), (5, 3), (5, 2)), "do not fit"),
        (((4, 2), (5, 2), (6, 2)), "do not fit"),
        (((4, 2), (1, 5, 2), (5, 2)), "rank"),
        (((4, 2**18), (5, 2**18), (5, 2)), "can reach"),
        (((4, 2), (5, 2), (5, 2), (3, 5)), "broadcast"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, reason):
    op = Attention(0, 0, 0, 62, 0, 62, 0, 62, 0, 62, 0, (), (), None)
    with pytest.raises(QuantizationError, match=reason):
        op.infer([TensorType(S8, s, 1.0, 0) for s in shapes], "op")


def test_constants_and_masks_that_cannot_be_proven_are_refused():
    types = [TensorType(S8, (4, 2), 1.0, 0)] * 3
    op = Attention(0, 0, 0, 62, 2**23, 2, 0, 62, 0, 62, 1, (), (0,), np.zeros((3, 4), np.int16))
    with pytest.raises(QuantizationError, match="constants"):
        op.infer(types, "op")
    wide = dataclasses.replace(op, bias=np.full((4, 4), 131072, np.int32))
    with pytest.raises(QuantizationError, match="constants"):
        wide.infer(types, "op")
    mask = TensorType(S16, (4, 4), 1.0, 0)
    with pytest.raises(QuantizationError, match="31 bits"):
        dataclasses.replace(wide, bias=wide.bias - 1).infer([*types, mask], "op")


def exact_scores(q, k, bias, scale, steps):
    """Scores of one row, saturated as s16, in rational numbers until the end."""
    sums = [sum(Fraction(int(a)) * int(b) for a, b in zip(q, key, strict=True)) for key in k]
    reals = [total * scale / steps + int(b) for total, b in zip(sums, bias, strict=True)]
    return [float(min(max(r, Fraction(-32767)), Fraction(32767)) * steps) for r in reals]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), keys=st.integers(1, 60), spread=st.floats(0.5, 12))
def test_against_exact_rows(seed, keys, spread):
    """Every weight is within half a level of 255, and nothing else adds."""
    rng = np.random.default_rng(seed)
    q = rng.integers(-127, 128, (3, 8))
    k = rng.integers(-127, 128, (keys, 8))
    v = rng.integers(-127, 128, (keys, 2))
    bias = rng.integers(-3000, 3001, (3, keys))
    steps, scale = Fraction(1, 1024), Fraction(spread) / 10182
    op = Attention(
        0, 0, *numerics.multiplier(float(scale / steps)), 0, 62,
        *numerics.softmax_multiplier(float(steps)), *numerics.multiplier(2.0**-16 * 256),
        bias_step=1, bias_batch=(), bias_first=(0,), bias=bias.astype(np.int16),
    )  # fmt: skip
    types = [TensorType(S8, x.shape, 1.0, 0) for x in (q, k, v)]
    out = TensorType(S16, (3, 2), 1 / 256, 0)
    (y,) = op.reference([x.astype(np.int8) for x in (q, k, v)], types, [out])
    for row in range(3):
        real = exact_scores(q[row], k, bias[row], scale, steps)
        weights = np.array([math.exp(r - max(real)) for r in real])
        mean = weights @ v / weights.sum()
        # Half a level, and two roundings of scores to 1/1024 seen through the exponential.
        off = 0.5 / 255 + weights * 1.1 / 1024
        reach = (np.abs(v - mean) * off[:, None]).sum(axis=0) / (weights - off).sum()
        assert (np.abs(y[row] / 256 - mean) <= reach + 0.01).all()


def test_bounds_of_the_normalisation():
    """Extremes of section 11: every intermediate stays where the text says."""
    for keys, reach in itertools.product((1, 2, 2**15), (255, 32767)):
        p = np.full((1, keys), 255, np.int64)
        w = numerics.attention_means(p, p.sum(axis=-1, keepdims=True) * reach)
        assert int(p.sum()) * reach * (2**39 // int(p.sum())) < 2**55
        assert 0 <= reach * 2**16 - int(w[0, 0]) <= reach * 2**16 * keys // 2**31 + 1
    assert numerics.attention_weights([5], numerics.softmax_multiplier(0.1)) == [255]
    far = numerics.attention_weights([32767, -32767], numerics.softmax_multiplier(1e-3))
    assert far.tolist() == [255, 0]


def test_constants_saturate():
    codes = numerics.attention_constants([-np.inf, -3.4e38, 0.25, 200.0], 2.0**-10)
    assert codes.tolist() == [-131071, -131071, 256, 131071]


def test_parts_that_are_equal_are_stored_once():
    codes = np.stack([np.full((2, 3), i % 2) for i in range(6)]).reshape(3, 2, 2, 3)
    found = scores.bias_rows(codes, (3, 2))
    assert found.rows.shape == (4, 3) and found.first == (0, 2, 0, 2, 0, 2) and found.step == 1
    shared = scores.bias_rows(np.ones((1, 1, 1, 3)), (3, 2))
    assert shared.rows.shape == (1, 3) and shared.first == (0,) * 6 and shared.step == 0


def test_the_module_is_asked_before_plain_products():
    from tilewright.ops import catalog, matmul

    assert catalog.BY_ONNX_TYPE["MatMul"].index(attention) < catalog.BY_ONNX_TYPE["MatMul"].index(
        matmul
    )
