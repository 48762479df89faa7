from __future__ import annotations

import numpy as np
import pytest
import quantize_nets as nets
from onnx import helper

from tilewright import reference
from tilewright.graph import DType
from tilewright.importer.compare import run_model
from tilewright.lowering import lower
from tilewright.quantize import Scheme, quantize_model
from tilewright.quantize.scheme import WeightType


@pytest.mark.parametrize("size", [0.0, 1e-42, 1e-36, 1e-33])
@pytest.mark.parametrize("corrected", [False, True])
def test_a_layer_of_vanishing_weights_is_quantized_as_zeros(size, corrected):
    rng = np.random.default_rng(3)
    constants = nets.arrays(
        rng, w1=(4, 3, 3, 3), b1=(4,), w2=(4, 4, 3, 3), b2=(4,), w3=(2, 4, 1, 1)
    )
    for name in ("w2", "b2"):
        constants[name] = (constants[name] * size).astype(np.float32)
    nodes = [
        nets.conv("x", "w1", "c1", bias="b1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        nets.conv("r1", "w2", "c2", bias="b2"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Add", ["r2", "r1"], ["a"]),
        nets.conv("a", "w3", "y", kernel=1),
    ]
    model = nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)
    feeds = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    quantized = quantize_model(model, feeds, Scheme(bias_correction=corrected))
    (island,) = lower(quantized.model).islands

    exact = run_model(model, feeds[0])["y"]
    found = reference.execute(island.graph, feeds[0])["y"]
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_channel_of_zeros_leaves_the_others_their_scale(per_channel):
    rng = np.random.default_rng(4)
    constants = nets.arrays(rng, w1=(4, 3, 3, 3), b1=(4,))
    constants["w1"][2] = 0
    constants["b1"][2] = 0
    model = nets.model(
        [nets.conv("x", "w1", "y", bias="b1")], {"x": (1, 3, 8, 8)}, ["y"], constants
    )
    feeds = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    scheme = Scheme(weights=WeightType(DType.S8, per_channel), bias_correction=False)
    quantized = quantize_model(model, feeds, scheme)
    (island,) = lower(quantized.model).islands

    exact = run_model(model, feeds[0])["y"]
    found = reference.execute(island.graph, feeds[0])["y"]
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    assert not found[:, 2].any()


def test_unsigned_weights_of_zeros_take_their_scale_from_the_bias():
    rng = np.random.default_rng(5)
    constants = nets.arrays(rng, w1=(4, 3, 3, 3), b1=(4,))
    constants["w1"][:] = 0
    constants["b1"] = (constants["b1"] * 1e-7).astype(np.float32)
    model = nets.model(
        [nets.conv("x", "w1", "y", bias="b1")], {"x": (1, 3, 8, 8)}, ["y"], constants
    )
    feeds = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    scheme = Scheme(weights=WeightType(DType.U8, per_channel=False), bias_correction=False)
    quantized = quantize_model(model, feeds, scheme)
    (island,) = lower(quantized.model).islands

    exact = run_model(model, feeds[0])["y"]
    found = reference.execute(island.graph, feeds[0])["y"]
    assert np.abs(found - exact).max() < 0.01 * np.abs(exact).max()
