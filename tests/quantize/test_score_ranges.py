"""Ranges of scores and masks: what Softmax cannot tell apart costs no codes."""

from __future__ import annotations

import numpy as np
import pytest
import quantize_nets as nets
from onnx import helper

from tilewright import graph as integer
from tilewright.graph import DType
from tilewright.lowering import lower
from tilewright.ops.attention import Attention
from tilewright.ops.pattern import FloatGraph
from tilewright.ops.softmax import Softmax
from tilewright.quantize import Scheme, find_sites, quantize_model
from tilewright.quantize.encodings import HEADROOM, observed_values
from tilewright.quantize.ranges import Range
from tilewright.quantize.scheme import ObserverChoice
from tilewright.quantize.score_ranges import NOTHING, find_scores
from tilewright.reference import execute_codes

PLAIN = Scheme(bias_correction=False, observer=ObserverChoice("minmax"))
Node = helper.make_node
TOKENS, WIDTH = 12, 8


def tokens(nodes, inputs=None, **constants):
    """Self-attention of one head: q, k, v are projections of x; `nodes` make p from s."""
    arrays = nets.arrays(np.random.default_rng(5), wq=(8, 8), wk=(8, 8), wv=(8, 8))
    given = {n: np.asarray(a) for n, a in constants.items()}
    arrays |= {n: a if a.dtype.kind == "i" else a.astype(np.float32) for n, a in given.items()}
    around = [
        Node("MatMul", ["x", "wq"], ["q"]),
        Node("MatMul", ["x", "wk"], ["k0"]),
        Node("Transpose", ["k0"], ["k"], perm=[0, 2, 1]),
        Node("MatMul", ["x", "wv"], ["v"]),
        Node("MatMul", ["q", "k"], ["s"]),
        *nodes,
        Node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"x": (2, TOKENS, WIDTH), **(inputs or {})}
    return nets.model(around, shapes, ["y"], arrays)


def masked_feeds(net, worth, shape):
    """Normal inputs, and masks of which a quarter removes a key, never the first."""
    rng = np.random.default_rng(8)
    samples = nets.feeds(net)
    for sample in samples:
        mask = np.where(rng.random(shape) < 0.25, worth, 0.0).astype(np.float32)
        mask[..., 0] = 0
        sample["m"] = mask
    return samples


def lowered_outputs(quantized, samples):
    """The first output by the reference, dequantized; one NPU island without CPU nodes."""
    lowered = lower(quantized.model)
    assert not lowered.cpu_nodes
    (island,) = lowered.islands
    graph, found = island.graph, []
    for sample in samples:
        codes = {b.tensor: quantize(graph, b, sample[b.name]) for b in graph.inputs}
        (border,) = graph.outputs
        tensor = graph.tensors[border.tensor]
        y = execute_codes(graph, codes)[border.tensor].reshape(tensor.shape)
        real = (y.astype(np.float64) - tensor.zero_point) * tensor.scale
        found.append(real.transpose(np.argsort(border.permutation)))
    return graph, np.stack(found)


def quantize(graph: integer.Graph, border, array):
    tensor = graph.tensors[border.tensor]
    with np.errstate(over="ignore"):
        q = np.rint(array / np.float32(tensor.scale)) + tensor.zero_point
    q = np.clip(q, *tensor.dtype.range)
    return np.ascontiguousarray(q.transpose(border.permutation)).astype(tensor.dtype.numpy)


MASKED = [Node("Add", ["s", "m"], ["a"]), Node("Softmax", ["a"], ["p"], axis=2)]


@pytest.mark.parametrize("worth", [-1e4, -3.4e38, -np.inf])
@pytest.mark.parametrize("shape", [(2, 1, TOKENS), (2, TOKENS, TOKENS)])
def test_a_run_time_mask_costs_the_scores_nothing(worth, shape):
    net = tokens(MASKED, {"m": shape})
    samples = masked_feeds(net, worth, shape)
    quantized = quantize_model(net, samples, PLAIN)
    encodings, ranges = quantized.report.encodings, quantized.report.ranges
    assert encodings["a"].dtype is DType.S16
    assert ranges["m"].high == 0
    assert ranges["m"].low == -(2 * HEADROOM * ranges["a"].reach + NOTHING)
    assert ranges["a"].reach < 60
    graph, found = lowered_outputs(quantized, samples)
    assert any(isinstance(n.op, Attention) for n in graph.nodes)
    assert nets.sqnr(nets.run(net, samples), found) > 28
    assert nets.sqnr(nets.run(net, samples), nets.run(quantized.model, samples)) > 28


def test_a_constant_mask_costs_the_scores_nothing():
    mask = np.where(np.tri(TOKENS) > 0, 0, -3.4e38)
    nodes = [Node("Add", ["s", "m"], ["a"]), Node("Softmax", ["a"], ["p"], axis=2)]
    net = tokens(nodes, m=mask)
    samples = nets.feeds(net)
    quantized = quantize_model(net, samples, PLAIN)
    assert quantized.report.ranges["a"].reach < 60
    assert quantized.report.encodings["a"].scale == pytest.approx(
        HEADROOM * quantized.report.ranges["a"].reach / 32767
    )
    _, found = lowered_outputs(quantized, samples)
    assert nets.sqnr(nets.run(net, samples), found) > 28


def test_a_mask_made_by_a_huge_factor_removes_keys():
    """1 - mask, times -3.4e38, as exported from transformers."""
    nodes = [
        Node("Sub", ["one", "m"], ["off"]),
        Node("Mul", ["off", "least"], ["far"]),
        Node("Reshape", ["far", "shape"], ["mask"]),
        Node("Add", ["s", "mask"], ["a"]),
        Node("Softmax", ["a"], ["p"], axis=2),
    ]
    net = tokens(nodes, {"m": (2, TOKENS)}, one=1.0, least=-3.4e38, shape=np.array([2, 1, TOKENS]))
    samples = masked_feeds(net, 1.0, (2, TOKENS))
    for sample in samples:
        sample["m"] = 1 - sample["m"]
    quantized = quantize_model(net, samples, PLAIN)
    assert -200 < quantized.report.ranges["far"].low < -NOTHING
    _, found = lowered_outputs(quantized, samples)
    assert nets.sqnr(nets.run(net, samples), found) > 28


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scores_of_a_softmax_alone(axis):
    """Rows whose values lie thousands apart: only the top of each counts."""
    nodes = [Node("Mul", ["x", "g"], ["s"]), Node("Softmax", ["s"], ["y"], axis=axis)]
    net = nets.model(nodes, {"x": (6, 7, 8)}, ["y"], {"g": np.float32(300)})
    samples = nets.feeds(net)
    quantized = quantize_model(net, samples, PLAIN)
    high = max(300 * s["x"].max() for s in samples)
    tops = min(300 * s["x"].max(axis=axis).min() for s in samples)
    found = quantized.report.ranges["s"]
    assert found.high == pytest.approx(high, rel=1e-5)
    assert found.low == pytest.approx(min(0.0, tops - NOTHING), rel=1e-4)


def scores_of(net):
    partition = find_sites(FloatGraph(net.graph))
    return find_scores(partition, observed_values(partition))


def test_movement_before_softmax_is_seen_through():
    shapes = {"two": np.array([6, 40], np.int64)}
    nodes = [
        Node("Relu", ["x"], ["r"]),
        Node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        Node("Softmax", ["t"], ["y"], axis=1),
    ]
    net = nets.model(nodes, {"x": (4, 5, 6)}, ["y"], {})
    assert scores_of(net).axes == {"r": 0}
    nodes[1:] = [Node("Reshape", ["r", "two"], ["t"]), Node("Softmax", ["t"], ["y"], axis=1)]
    net = nets.model(nodes, {"x": (6, 5, 8)}, ["y"], shapes)
    assert scores_of(net).axes == {}
    net = nets.model(nodes, {"x": (2, 3, 40)}, ["y"], shapes)
    assert scores_of(net).axes == {"r": 2}


def test_what_others_read_keeps_its_range():
    nodes = [
        Node("Relu", ["x"], ["r"]),
        Node("Softmax", ["r"], ["p"], axis=1),
        Node("Add", ["p", "r"], ["y"]),
    ]
    net = nets.model(nodes, {"x": (4, 5)}, ["y"], {})
    assert scores_of(net).axes == {}
    assert scores_of(net).masks == {}


def test_a_mask_that_something_else_reads_is_not_cut():
    nodes = [
        Node("Add", ["s", "m"], ["a"]),
        Node("Softmax", ["a"], ["r"], axis=2),
        Node("Mul", ["r", "m"], ["p"]),
    ]
    net = tokens(nodes, {"m": (2, TOKENS, TOKENS)})
    samples = masked_feeds(net, -500.0, (2, TOKENS, TOKENS))
    assert scores_of(net).masks.keys() == {"s"}
    assert quantize_model(net, samples, PLAIN).report.ranges["m"].low == -500


def test_masks_of_a_softmax_that_is_not_fused_are_cut_as_well():
    nodes = [
        Node("Relu", ["x"], ["r"]),
        Node("Add", ["r", "m"], ["a"]),
        Node("Softmax", ["a"], ["y"], axis=1),
    ]
    net = nets.model(nodes, {"x": (4, 9), "m": (4, 9)}, ["y"], {})
    samples = masked_feeds(net, -1e4, (4, 9))
    quantized = quantize_model(net, samples, PLAIN)
    assert -150 < quantized.report.ranges["m"].low < -NOTHING
    assert quantized.report.ranges["a"].low >= -NOTHING
    graph, found = lowered_outputs(quantized, samples)
    assert any(isinstance(n.op, Softmax) for n in graph.nodes)
    assert nets.sqnr(nets.run(net, samples), found) > 25


def test_an_addend_that_lies_far_below_everywhere_is_no_mask():
    nodes = [Node("Add", ["x", "m"], ["a"]), Node("Softmax", ["a"], ["y"], axis=1)]
    net = nets.model(nodes, {"x": (4, 9), "m": (4, 9)}, ["y"], {})
    samples = nets.feeds(net)
    for sample in samples:
        sample["x"], sample["m"] = sample["x"] + 1000, sample["m"] - 1000
    ranges = quantize_model(net, samples, PLAIN).report.ranges
    assert ranges["m"].low < -1000
    assert ranges["x"] == Range(0.0, float(max(s["x"].max() for s in samples)))
