from __future__ import annotations

import dataclasses

import numpy as np
import quantize_nets as nets
from onnx import helper

from tilewright.graph import DType
from tilewright.ops.pattern import FloatGraph
from tilewright.quantize import Scheme, find_sites, quantize_model
from tilewright.quantize.algorithms import ALGORITHMS
from tilewright.quantize.scheme import ObserverChoice, WeightType


def uneven(seed=0):
    """Expand, depthwise, project with ReLU6, and channels whose weights differ a hundredfold."""
    rng = np.random.default_rng(seed)
    constants = nets.arrays(
        rng, w1=(8, 3, 1, 1), b1=(8,), w2=(8, 1, 3, 3), b2=(8,), w3=(4, 8, 1, 1)
    )
    constants["w1"] *= np.logspace(-1, 1, 8, dtype=np.float32).reshape(8, 1, 1, 1)
    constants["w3"] *= np.logspace(1, -1, 8, dtype=np.float32).reshape(1, 8, 1, 1)
    constants["w2"] *= np.logspace(0.5, -0.5, 8, dtype=np.float32).reshape(8, 1, 1, 1)
    constants["lo"], constants["hi"] = np.float32(0), np.float32(6)
    nodes = [
        nets.conv("x", "w1", "c1", kernel=1, bias="b1"),
        helper.make_node("Clip", ["c1", "lo", "hi"], ["r1"]),
        nets.conv("r1", "w2", "c2", group=8, bias="b2"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        nets.conv("r2", "w3", "y", kernel=1),
    ]
    return nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)


def apply(net):
    return ALGORITHMS["equalization"].apply(net)


def test_the_function_stays_the_same():
    net = uneven()
    samples = nets.feeds(net)
    exact = nets.run(net, samples)
    assert nets.sqnr(exact, nets.run(apply(net).model, samples)) > 100


def test_neighbouring_channels_have_equal_ranges():
    changed = apply(uneven()).model
    weights = {n: v.const_value.numpy() for n, v in changed.graph.initializers.items()}
    tops = [
        np.abs(weights["w1"]).max(axis=(1, 2, 3)),
        np.abs(weights["w2"]).max(axis=(1, 2, 3)),
        np.abs(weights["w3"]).max(axis=(0, 2, 3)),
    ]
    assert np.allclose(tops[0], tops[1], rtol=0.01)
    assert np.allclose(tops[1], tops[2], rtol=0.01)


def test_a_clamp_moves_with_its_channel_and_stays_fused():
    net = uneven()
    changed = apply(net)
    partition = find_sites(FloatGraph(changed.model.graph))
    assert [s.kind for s in partition.sites] == ["Conv"] * 3
    assert partition.sites[0].pattern.activation.high.size == 8
    assert partition.sites[0].name == "n1_Clip"
    assert [s.outputs[0].name for s in partition.sites] == ["r1", "r2", "y"]
    assert changed.notes


def test_the_source_is_left_alone_and_nothing_happens_without_pairs():
    net = nets.two_branches(2.0)
    before = {n: v.const_value.numpy().copy() for n, v in net.graph.initializers.items()}
    changed = apply(net)
    assert not changed.notes
    for name, value in net.graph.initializers.items():
        assert np.array_equal(before[name], value.const_value.numpy())


def test_it_gains_accuracy_with_one_weight_scale_per_tensor():
    net = uneven()
    samples = nets.feeds(net)
    exact = nets.run(net, samples)
    plain = Scheme(
        weights=WeightType(DType.S8, False),
        bias_correction=False,
        observer=ObserverChoice("minmax"),
    )
    found = [
        nets.sqnr(exact, nets.run(quantize_model(net, samples, scheme).model, samples, False))
        for scheme in (plain, dataclasses.replace(plain, equalization=True))
    ]
    assert found[1] > found[0] + 3
