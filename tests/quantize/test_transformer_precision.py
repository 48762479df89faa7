"""The residual stream at 16 bits, and scales that move from normalised tensors into weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest
import quantize_nets as nets
from onnx import helper

from tilewright.graph import DType
from tilewright.lowering import lower
from tilewright.ops.pattern import FloatGraph
from tilewright.quantize import Scheme, quantize_model
from tilewright.quantize.algorithms.smoothing import smooth
from tilewright.quantize.sites import find_sites
from tilewright.quantize.streams import convolves, find_streams, widen_streams
from tilewright.reference import execute

TOKENS, WIDTH = 12, 16
PLAIN = Scheme(smoothing=False, residual_stream="same", bias_correction=False)


def norm(x, y, tag):
    return helper.make_node("LayerNormalization", [x, f"g{tag}", f"b{tag}"], [y], axis=-1)


def linear(x, y, tag):
    return [
        helper.make_node("MatMul", [x, f"w{tag}"], [f"{y}_p"]),
        helper.make_node("Add", [f"{y}_p", f"c{tag}"], [y]),
    ]


def constants(tags, outlier=40.0, seed=5):
    """Weights of linear layers, and normalisations with one channel that stands far out."""
    rng = np.random.default_rng(seed)
    found = {}
    for tag in tags:
        found[f"w{tag}"] = (rng.normal(size=(WIDTH, WIDTH)) / 4).astype(np.float32)
        found[f"c{tag}"] = rng.normal(size=WIDTH).astype(np.float32)
        gain = np.exp(rng.normal(size=WIDTH) * 0.3).astype(np.float32)
        gain[3] = outlier
        found[f"g{tag}"], found[f"b{tag}"] = gain, rng.normal(size=WIDTH).astype(np.float32)
        found[f"w{tag}"][3] /= outlier
    return found


def pre_norm():
    """y = x + linear(norm(x)), twice, and a last normalised projection."""
    nodes = [
        norm("x", "n1", 1),
        *linear("n1", "l1", 1),
        helper.make_node("Add", ["x", "l1"], ["s"]),
    ]
    nodes += [norm("s", "n2", 2), *linear("n2", "l2", 2)]
    nodes += [
        helper.make_node("Add", ["s", "l2"], ["t"]),
        norm("t", "n3", 3),
        *linear("n3", "y", 3),
    ]
    return nets.model(nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], constants([1, 2, 3]))


def post_norm():
    """A normalised tensor that both a product and the next sum read."""
    nodes = [norm("x", "n1", 1), *linear("n1", "l1", 1)]
    nodes += [helper.make_node("Add", ["n1", "l1"], ["s"]), norm("s", "n2", 2)]
    nodes += linear("n2", "y", 2)
    return nets.model(nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], constants([1, 2]))


def shuffled():
    """Rows move between a normalisation and its product: a cyclic shift and a window partition."""
    given = constants([1])
    given |= {
        "s0": np.array([4]), "e0": np.array([TOKENS]), "z": np.array([0]), "m": np.array([4]),
        "ax": np.array([1]), "shape": np.array([3, 4, WIDTH]),
    }  # fmt: skip
    nodes = [
        norm("x", "n", 1),
        helper.make_node("Slice", ["n", "s0", "e0", "ax"], ["a"]),
        helper.make_node("Slice", ["n", "z", "m", "ax"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["rolled"], axis=1),
        helper.make_node("Reshape", ["rolled", "shape"], ["windows"]),
        *linear("windows", "y", 1),
    ]
    return nets.model(nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], given)


def feeds(net, count=8):
    """Tokens with one channel a hundred times the others."""
    found = nets.feeds(net, count)
    for sample in found:
        sample["x"] = sample["x"].copy()
        sample["x"][..., 5] *= 100
    return found


@pytest.mark.parametrize("net", [pre_norm(), post_norm(), shuffled()])
def test_smoothing_keeps_the_function(net):
    samples = feeds(net)
    changed = smooth(net, samples)
    assert changed.notes
    exact, found = nets.run(net, samples), nets.run(changed.model, samples)
    assert nets.sqnr(exact, found) > 100


def test_smoothing_doubles_a_normalisation_that_a_sum_reads():
    changed = smooth(post_norm(), feeds(post_norm()))
    kinds = [n.op_type for n in changed.model.graph]
    assert kinds.count("LayerNormalization") == 3
    assert "doubled" in changed.notes[0]


def test_smoothing_leaves_what_reaches_other_operators():
    nodes = [norm("x", "n", 1), helper.make_node("Sigmoid", ["n"], ["y"])]
    net = nets.model(nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], constants([1]))
    assert smooth(net, feeds(net)).model is net


def test_the_stream_is_what_normalisations_read_and_what_is_added_to_it():
    net = pre_norm()
    streams = find_streams(find_sites(FloatGraph(net.graph)))
    assert streams == {"x", "s", "t", "l1", "l2"}


def test_products_read_a_narrow_copy_of_a_stream():
    net = post_norm()
    widened = widen_streams(net)
    assert widened.wide == {"x", "s", "n1", "l1"}
    assert widened.narrowed == 1
    (copy,) = [n for n in widened.model.graph if n.op_type == "Identity"]
    assert copy.inputs[0].name == "n1"
    assert {use.node.op_type for use in copy.outputs[0].uses()} == {"MatMul"}


def test_a_group_that_is_too_long_for_16_bits_reads_a_narrow_copy():
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "g", "b"], ["n"]),
        helper.make_node("Conv", ["n", "w"], ["l"]),
        helper.make_node("Add", ["r", "l"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "k"], ["y"], axis=-1),
    ]
    given = {
        "w": rng.normal(size=(4, 4, 1, 1)),
        "g": np.ones(4),
        "b": np.zeros(4),
        "k": np.ones(240),
    }
    given = {name: array.astype(np.float32) for name, array in given.items()}
    net = nets.model(nodes, {"x": (1, 4, 240, 240)}, ["y"], given)
    widened = widen_streams(net)
    assert widened.wide == {"r", "l", "s"}
    (copy,) = [n for n in widened.model.graph if n.op_type == "Identity"]
    assert [use.node.op_type for use in copy.outputs[0].uses()] == ["InstanceNormalization"]
    scheme = dataclasses.replace(PLAIN, residual_stream="s16")
    lowered = lower(quantize_model(net, nets.feeds(net, 2), scheme).model)
    assert not lowered.cpu_nodes and len(lowered.islands) == 1


def quality(net, scheme):
    """Output SQNR of the integer graph, in dB."""
    samples = feeds(net)
    quantized = quantize_model(net, samples, scheme).model
    lowered = lower(quantized)
    assert not lowered.cpu_nodes
    (island,) = lowered.islands
    found = np.stack([execute(island.graph, dict(s))["y"] for s in samples])
    return nets.sqnr(nets.run(net, samples), found), island.graph


@pytest.mark.parametrize("net", [pre_norm(), post_norm()])
def test_16_bits_in_the_stream_and_smoothing_pay(net):
    plain, _ = quality(net, PLAIN)
    wide, graph = quality(net, dataclasses.replace(PLAIN, residual_stream="s16"))
    smoothed, _ = quality(net, dataclasses.replace(PLAIN, residual_stream="s16", smoothing=True))
    assert wide > plain + 1
    assert smoothed > plain + 10
    assert smoothed > 30
    products = [n for n in graph.nodes if type(n.op).__name__ == "Dense"]
    assert products
    assert all(graph.tensors[n.inputs[0]].dtype is not DType.S16 for n in products)


def test_a_convolutional_network_has_no_stream():
    net = nets.classifier()
    assert widen_streams(net).model is net
    report = quantize_model(net, nets.feeds(net), Scheme()).report
    assert not any("residual" in note for note in report.notes)


def outlying_function():
    """A GELU one of whose channels is far larger than the others, between two products."""
    given = constants([1, 2], outlier=1.0)
    given["w1"][:, 7] *= 30
    nodes = [norm("x", "n", 1), *linear("n", "h", 1), helper.make_node("Gelu", ["h"], ["g"])]
    nodes += linear("g", "y", 2)
    return nets.model(nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], given)


def test_an_outlying_channel_of_a_function_moves_into_the_product_behind():
    net = outlying_function()
    samples = nets.feeds(net)
    changed = smooth(net, samples)
    assert any("activation functions" in note for note in changed.notes)
    assert nets.sqnr(nets.run(net, samples), nets.run(changed.model, samples)) > 100
    known = quantize_model(net, samples, Scheme()).report.encodings
    assert known["g"].dtype is DType.S16
    assert known["g_smoothed"].dtype is DType.U8


def test_a_function_without_outliers_stays_as_it_is():
    net = outlying_function()
    weight = net.graph.initializers["w1"]
    even = weight.const_value.numpy().copy()
    even[:, 7] /= 30
    weight.const_value = ir.tensor(even, name="w1")
    assert not any("activation" in note for note in smooth(net, nets.feeds(net)).notes)


def test_outliers_are_cut_in_convolutional_networks_alone():
    """A text recogniser of convolutions and two attention blocks gains 4 dB by the cut."""
    observers = []
    for net in (pre_norm(), nets.classifier()):
        model = quantize_model(net, nets.feeds(net), Scheme(bias_correction=False)).model
        observers.append(model.metadata_props["pkg.tilewright.observer"])
    assert observers == ["minmax", "percentile"]


def test_convolutions_before_a_little_attention_decide():
    given = constants([1])
    given["w"] = np.random.default_rng(1).normal(size=(WIDTH, 3, 5, 5)).astype(np.float32)
    given["shape"] = np.array([1, WIDTH, 64])
    nodes = [
        nets.conv("x", "w", "c", kernel=5),
        helper.make_node("Reshape", ["c", "shape"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        norm("t", "n", 1),
        *linear("n", "y", 1),
    ]
    net = nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], given)
    assert convolves(find_sites(FloatGraph(net.graph)))
    assert not convolves(find_sites(FloatGraph(pre_norm().graph)))
