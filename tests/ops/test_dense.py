"""Gemm and MatMul with a constant operand."""

from __future__ import annotations

import numpy as np
import pytest
from float_models import Weights, lower, parse, refusal

from tilewright.graph import DType, Encoding
from tilewright.ops.add import AddConstant
from tilewright.ops.dense import Dense
from tilewright.ops.protocol import Tile, View, whole
from tilewright.ops.transpose import Transpose

U8, S8, S16 = DType.U8, DType.S8, DType.S16


def drawn():
    """The same numbers in every test, in whatever order the tests run."""
    return np.random.default_rng(1)


W = drawn().normal(0, 1, (6, 5))
BIAS = drawn().normal(0, 1, 5)


@pytest.mark.parametrize("x", [U8, S8, S16])
@pytest.mark.parametrize("y", [U8, S8, S16])
@pytest.mark.parametrize("w", [Weights(), Weights(U8, False, 120), Weights(S16)])
def test_types(x, y, w):
    model = parse("(float[3,6] x) => (float[3,5] y) { y = Gemm(x, w, b) }", w=W, b=BIAS)
    # Beside a 16-bit output step, half an accumulator step of the bias counts.
    lower(model, {"x": x, "y": y}, w).check(1.5 if y is S16 else 0.51)


@pytest.mark.parametrize("bias", [BIAS, BIAS[None], BIAS[:1], None])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(bias, transposed):
    operands = "x, w" if bias is None else "x, w, b"
    text = f"(float[3,6] x) => (float[3,5] y) {{ y = Gemm<transB={transposed}>({operands}) }}"
    made = lower(parse(text, w=W.T if transposed else W, b=bias), {"x": U8, "y": S8}).check()
    assert made.operators == [Dense] and made.sites[0].macs == 3 * 5 * 6
    assert made.graph.nodes[0].op.weight.shape == (5, 6)


@pytest.mark.parametrize("lead", ["", "3,", "2,3,", "2,3,4,", "2,1,3,2,"])
def test_matmul_of_any_rank(lead):
    text = f"(float[{lead}6] x) => (float[{lead}5] y) {{ y = MatMul(x, w) }}"
    made = lower(parse(text, w=W), {"x": S8, "y": S8}).check()
    assert made.operators[-1] is Dense


@pytest.mark.parametrize("lead", ["", "2,", "2,3,"])
def test_a_constant_left_operand_contracts_the_other_axis(lead):
    text = f"(float[{lead}6,4] x) => (float[{lead}5,4] y) {{ p = MatMul(w, x) y = Add(p, b) }}"
    made = lower(parse(text, w=W.T, b=BIAS[:, None]), {"x": S8, "y": S8}).check()
    assert made.operators.count(Dense) == 1 and AddConstant not in made.operators
    assert made.sites[0].weights.axis == 0


@pytest.mark.parametrize("operands", ["p, b", "b, p"])
def test_a_bias_behind_the_product_fuses_unless_the_product_has_a_scale(operands):
    text = f"(float[2,3,6] x) => (float[2,3,5] y) {{ p = MatMul(x, w) y = Add({operands}) }}"
    model = parse(text, w=W, b=BIAS)
    made = lower(model, {"x": S8, "y": S8}).check()
    assert AddConstant not in made.operators
    assert made.sites[0].weights.bias.name == "b"
    apart = lower(model, {"x": S8, "p": S8, "y": S8}).check(1.7)
    assert apart.operators[-2:] == [Dense, AddConstant]


def test_an_add_of_a_whole_matrix_is_no_bias():
    text = "(float[3,6] x) => (float[3,5] y) { p = MatMul(x, w) y = Add(p, b) }"
    made = lower(parse(text, w=W, b=drawn().normal(0, 1, (3, 5))), {"x": S8, "p": S8, "y": S8})
    assert made.operators == [Dense, AddConstant]


def test_activations_fuse():
    text = "(float[3,6] x) => (float[3,5] y) { p = MatMul(x, w) q = Add(p, b) y = Tanh(q) }"
    model = parse(text, w=W, b=BIAS)
    made = lower(model, {"x": S8, "q": S16, "y": S8}).check(0.6)
    assert made.operators == [Dense] and made.sites[0].inner.name == "q"
    text = text.replace("Tanh", "Relu")
    assert lower(parse(text, w=W, b=BIAS), {"x": S8, "y": U8}).check().operators == [Dense]


def test_the_layout_of_the_input_is_kept_where_channels_are_last():
    """Rank 3 inputs arrive channels last: one transpose brings the contracted axis back."""
    text = "(float[2,3,6] x) => (float[2,3,5] y) { y = MatMul(x, w) }"
    assert lower(parse(text, w=W), {"x": S8, "y": S8}).operators == [Transpose, Dense]


def test_rows_that_do_not_merge_become_several_instructions():
    model = parse("(float[2,3,4,6] x) => (float[2,3,4,5] y) { y = MatMul(x, w) }", w=W)
    made = lower(model, {"x": S8, "y": S8})
    node = made.graph.nodes[-1]
    (x,), (y,) = made.graph.types(node.inputs), made.graph.types(node.outputs)

    def emitted(strides):
        view = View(x, whole(x.shape), 0, strides)
        out = View(y, whole(y.shape), 4096, (60, 20, 5, 1))
        return node.op.emit(Tile(whole(y.shape), out, (view,), {"weight": 64, "channels": 128}))

    (packed,) = emitted((72, 24, 6, 1))
    assert (packed.in_rows, packed.in_columns) == (24, 1)
    (two,) = emitted((80, 24, 6, 1))
    assert (two.in_rows, two.in_columns, two.in_strides) == (2, 12, (80, 6))
    assert len(emitted((80, 25, 6, 1))) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[3,6] x, float[6,5] k) => (float[3,5] y) { y = Gemm(x, k) }",
            "its weights are computed at run time",
        ),
        (
            "(float[3,6] x) => (float[3,5] y) { y = Gemm<alpha=0.5>(x, w) }",
            "its alpha, beta or transA has not been folded",
        ),
        (
            "(float[5,6] x) => (float[5,5] y) { y = Gemm(x, w, v2) }",
            "its bias differs from row to row",
        ),
    ],
)
def test_refusals(text, reason):
    assert refusal(text, w=W, v2=np.ones((5, 5))) == reason


def test_long_16_bit_sums_are_shifted_first():
    x = Encoding(S16, 1e-3, 0)
    w = np.full((3000, 2), 1.0)
    model = parse("(float[2,3000] x) => (float[2,2] y) { y = MatMul(x, w) }", w=w)
    samples = {"x": drawn().uniform(-32, 32, (2, 3000))}
    made = lower(model, {"x": x, "y": S16}, Weights(S16), inputs=samples).check(0.6, tiles=False)
    assert made.graph.nodes[0].op.pre_shift == (3000 * 32767**2 + 256).bit_length() - 38
