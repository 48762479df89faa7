from __future__ import annotations

import numpy as np
import pytest
import quantize_nets as nets
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tilewright.quantize import Scheme, quantize_model
from tilewright.quantize.bias_correction import _spread
from tilewright.quantize.patches import mean_output, patch_rule
from tilewright.quantize.scheme import ObserverChoice

PLAIN = Scheme(bias_correction=False, observer=ObserverChoice("minmax"))
CORRECTED = Scheme(observer=ObserverChoice("minmax"))


def patch_of(rule, x):
    """The mean patch by the rule's matrices, as the sub-models compute it."""
    if not rule.matrices:
        return x.mean(axis=tuple(a for a in range(x.ndim) if a != rule.axis))
    if len(rule.matrices) == 1:
        return (x @ rule.matrices[0]).mean(axis=0)
    return (rule.matrices[0] @ (x @ rule.matrices[1])).mean(axis=0)


def check(node, shape, weight, at=0):
    rng = np.random.default_rng(0)
    net = nets.model([node], {"x": shape}, ["y"], {"w": weight})
    (made,) = list(net.graph)
    x = rng.normal(size=shape).astype(np.float32)
    y = nets.session(net).run(None, {"x": x})[0].astype(np.float64)
    axis = 1
    if made.op_type == "MatMul":
        axis = y.ndim - 1 if at == 0 else y.ndim - 2
    expected = y.mean(axis=tuple(a for a in range(y.ndim) if a != axis))
    patch = patch_of(patch_rule(made, at), x.astype(np.float64))
    found = mean_output(made, weight.astype(np.float64), patch)
    assert np.allclose(found, expected, atol=1e-5 * max(1, np.abs(expected).max()))


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(0, 2),
    st.sampled_from([1, 2, 4]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_mean_of_a_convolution_from_the_mean_patch(kernel, stride, dilation, top, right, group):
    rng = np.random.default_rng(kernel)
    weight = rng.normal(size=(8, 4 // group, kernel, kernel)).astype(np.float32)
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], kernel_shape=[kernel] * 2, strides=[stride, 1],
        dilations=[dilation] * 2, pads=[top, 0, 1, right], group=group,
    )  # fmt: skip
    check(node, (2, 4, 9, 11), weight)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1), st.sampled_from([1, 2]))
@settings(max_examples=20, deadline=None)
def test_mean_of_a_transposed_convolution(kernel, stride, pad, group):
    if kernel <= 2 * pad:
        pad = 0
    weight = np.random.default_rng(7).normal(size=(4, 6 // group, kernel, kernel))
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2,
        pads=[pad] * 4, group=group, dilations=[1, 1], output_padding=[0, 0],
    )  # fmt: skip
    check(node, (2, 4, 5, 6), weight.astype(np.float32))


def test_mean_of_a_1d_convolution_and_of_matrix_products():
    rng = np.random.default_rng(3)
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], kernel_shape=[3], strides=[2], pads=[1, 0], dilations=[1]
    )
    check(node, (2, 4, 9), rng.normal(size=(5, 4, 3)).astype(np.float32))
    check(
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=1),
        (6, 4), rng.normal(size=(5, 4)).astype(np.float32),
    )  # fmt: skip
    check(
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        (2, 6, 4), rng.normal(size=(4, 5)).astype(np.float32),
    )  # fmt: skip
    check(
        helper.make_node("MatMul", ["w", "x"], ["y"]),
        (2, 4, 6), rng.normal(size=(5, 4)).astype(np.float32), at=1,
    )  # fmt: skip


def coarse(seed=4, size=32):
    """A chain whose weights have one large and many small values: rounding shifts its means."""
    rng = np.random.default_rng(seed)
    constants = nets.arrays(rng, w1=(16, 3, 3, 3), w2=(16, 1, 3, 3), w3=(8, 16, 1, 1), b3=(8,))
    for name in ("w1", "w2", "w3"):
        weight = constants[name] * 0.02
        weight.reshape(len(weight), -1)[:, 0] = 2.0
        constants[name] = weight
    nodes = [
        nets.conv("x", "w1", "c1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        nets.conv("r1", "w2", "c2", group=16),
        helper.make_node("Relu", ["c2"], ["r2"]),
        nets.conv("r2", "w3", "y", kernel=1, bias="b3"),
    ]
    return nets.model(nodes, {"x": (1, 3, size, size)}, ["y"], constants)


def test_means_of_the_output_are_those_of_the_float_model():
    net = coarse()
    samples = nets.feeds(net, 6)
    exact = nets.run(net, samples).mean(axis=(0, 1, 3, 4))

    def shift(scheme):
        made = quantize_model(net, samples, scheme)
        return np.abs(nets.run(made.model, samples, False).mean(axis=(0, 1, 3, 4)) - exact).max()

    assert shift(CORRECTED) < 0.05 * shift(PLAIN)


def test_it_gains_accuracy_on_samples_that_it_did_not_see():
    net = coarse()
    unseen = nets.feeds(net, 6, seed=99)
    exact = nets.run(net, unseen)
    plain, corrected = (
        nets.sqnr(exact, nets.run(quantize_model(net, nets.feeds(net), s).model, unseen))
        for s in (PLAIN, CORRECTED)
    )
    assert corrected > plain + 0.3


def test_a_convolution_without_bias_gets_one():
    net = coarse()
    made = quantize_model(net, nets.feeds(net), CORRECTED)
    assert all(len(n.inputs) == 3 for n in nets.by_op(made.model, "Conv"))
    assert set(made.report.corrections) == {n.name for n in net.graph if n.op_type != "Conv"} | {
        "n4_Conv"
    }


def test_branches_and_wide_tensors_pass_through_the_stages():
    for net in (nets.classifier(), nets.detector(), nets.two_branches(3.0)):
        made = quantize_model(net, nets.feeds(net), CORRECTED)
        assert len(made.report.corrections) == sum(n.op_type in ("Conv", "Gemm") for n in net.graph)


def test_fewer_samples_are_used_when_their_codes_need_too_much_memory(monkeypatch):
    monkeypatch.setattr("tilewright.quantize.bias_correction.MEMORY", 3 * 16 * 32 * 32)
    net = coarse()
    made = quantize_model(net, nets.feeds(net, 9), CORRECTED)
    assert any("used 3 samples" in note for note in made.report.notes)
    assert _spread(9, 3) == [0, 3, 6]


def test_scores_are_corrected_where_the_sigmoid_is_steep():
    """A score branch that is steep at few positions: the mean of all would not repair it."""
    rng = np.random.default_rng(0)
    constants = nets.arrays(rng, w1=(8, 3, 3, 3), b1=(8,), w2=(2, 8, 1, 1))
    constants["w2"] *= 4
    constants["b2"] = np.float32([-4, -6])
    nodes = [
        nets.conv("x", "w1", "c1", bias="b1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        nets.conv("r1", "w2", "c2", kernel=1, bias="b2"),
        helper.make_node("Sigmoid", ["c2"], ["y"]),
    ]
    net = nets.model(nodes, {"x": (1, 3, 32, 32)}, ["y"], constants)
    samples = nets.feeds(net, 8)
    made = quantize_model(net, samples, CORRECTED)
    exact, got = nets.run(net, samples), nets.run(made.model, samples, False)
    slope = (exact * (1 - exact)) ** 2
    error = (slope * (got - exact)).sum() / slope.sum()
    assert slope.sum() > 20
    assert abs(error) < 2e-3


def test_a_weight_that_two_layers_share_is_corrected_for_each():
    constants = nets.arrays(np.random.default_rng(1), w=(3, 3, 3, 3), b=(3,))
    nodes = [
        nets.conv("x", "w", "c1", bias="b"),
        helper.make_node("Relu", ["c1"], ["r"]),
        nets.conv("r", "w", "y", bias="b"),
    ]
    net = nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)
    samples = nets.feeds(net)
    made = quantize_model(net, samples, CORRECTED)
    assert nets.sqnr(nets.run(net, samples), nets.run(made.model, samples)) > 25
    assert len(made.report.corrections) == 2


@pytest.mark.parametrize("scheme", [PLAIN, CORRECTED])
def test_products_without_correction_are_left_alone(scheme):
    constants = nets.arrays(np.random.default_rng(1), w=(6, 4))
    net = nets.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 5, 6)}, ["y"], constants
    )
    samples = nets.feeds(net)
    made = quantize_model(net, samples, scheme)
    assert nets.sqnr(nets.run(net, samples), nets.run(made.model, samples)) > 30
