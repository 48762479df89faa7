from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import quantize_nets as nets

from tilewright.graph import DType
from tilewright.quantize import Scheme, find_sites, quantize_model, strip
from tilewright.quantize.ranges import ActivationType
from tilewright.quantize.scheme import ObserverChoice, WeightType

PLAIN = Scheme(bias_correction=False, observer=ObserverChoice("minmax"))
SCHEMES = {
    "u8": PLAIN,
    "s8": dataclasses.replace(PLAIN, activations=ActivationType(DType.S8)),
    "s8 symmetric": dataclasses.replace(PLAIN, activations=ActivationType(DType.S8, True)),
    "u8 symmetric": dataclasses.replace(PLAIN, activations=ActivationType(DType.U8, True)),
    "s16": dataclasses.replace(PLAIN, activations=ActivationType(DType.S16, True)),
    "power of two": dataclasses.replace(
        PLAIN,
        activations=ActivationType(DType.S8, True, True),
        weights=WeightType(DType.S8, False, True),
    ),
    "weights per tensor": dataclasses.replace(PLAIN, weights=WeightType(DType.S8, False)),
    "u8 weights": dataclasses.replace(PLAIN, weights=WeightType(DType.U8, False)),
    "8-bit outputs": dataclasses.replace(PLAIN, outputs="same"),
    "bias correction": Scheme(),
}
NETS = {"classifier": nets.classifier, "detector": nets.detector}


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return SCHEMES[request.param]


@pytest.mark.parametrize("name", NETS)
def test_the_model_is_valid_and_close_to_float(scheme, name):
    net = NETS[name]()
    samples = nets.feeds(net)
    quantized = quantize_model(net, samples, scheme)
    onnx.checker.check_model(ir.to_proto(quantized.model), full_check=True)
    exact = nets.run(net, samples)
    floor = 12 if scheme.activations.power_of_two else 20
    for optimised in (True, False):
        assert nets.sqnr(exact, nets.run(quantized.model, samples, optimised)) > floor


@pytest.mark.parametrize("name", NETS)
def test_strip_gives_the_encodings_and_sites_back(scheme, name):
    net = NETS[name]()
    quantized = quantize_model(net, nets.feeds(net), scheme)
    stripped = strip(quantized.model)
    assert stripped.encodings == quantized.report.encodings
    partition = find_sites(stripped)
    cpu = {row.name for row in quantized.report.cpu}
    assert {node.name for node, _ in partition.cpu} == cpu
    for site in partition.sites:
        if site.weights is not None:
            assert stripped.constants[site.weights.value.name].dtype is scheme.weights.dtype
    outputs = [v.name for v in stripped.graph.outputs]
    assert outputs == [v.name for v in net.graph.outputs]
    assert not {n.op_type for n in stripped.graph} & {"QuantizeLinear", "DequantizeLinear"}


def test_the_float_graph_under_the_quantizers_is_the_float_model():
    net = nets.classifier()
    samples = nets.feeds(net)
    stripped = strip(quantize_model(net, samples, PLAIN).model)
    float_again = ir.Model(stripped.graph, ir_version=10)
    # Only the constants were rounded.
    assert nets.sqnr(nets.run(net, samples), nets.run(float_again, samples)) > 30
    assert [n.name for n in stripped.graph] == [n.name for n in net.graph]


def test_two_runs_give_equal_bytes_and_leave_the_model_alone():
    net = nets.detector()
    before = ir.to_proto(net).SerializeToString(deterministic=True)
    made = [
        ir.to_proto(quantize_model(net, nets.feeds(net), Scheme()).model).SerializeToString(
            deterministic=True
        )
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert ir.to_proto(net).SerializeToString(deterministic=True) == before


def test_min_max_does_not_depend_on_the_order_of_samples():
    net = nets.classifier()
    samples = nets.feeds(net, 12)
    ranges = [quantize_model(net, s, PLAIN).report.ranges for s in (samples, samples[::-1])]
    assert ranges[0] == ranges[1]


def test_provenance_is_in_the_metadata():
    net = nets.classifier()
    props = quantize_model(net, nets.feeds(net), PLAIN).model.metadata_props
    assert props["pkg.tilewright.scheme"] == "u8 activations, s8 weights per channel, s16 outputs"
    assert props["pkg.tilewright.bias_correction"] == "none"
    assert props["pkg.tilewright.calibration_samples"] == "8"


def test_unfused_onnxruntime_equals_fake_quantization_by_hand():
    net = nets.two_branches(1.0)
    samples = nets.feeds(net, 4)
    quantized = quantize_model(net, samples, PLAIN)
    stripped = strip(quantized.model)
    known, constants = stripped.encodings, stripped.constants

    def fake(value, name):
        e = known[name]
        lo, hi = e.dtype.range
        scale = np.float32(e.scale)
        codes = np.clip(np.rint(value.astype(np.float32) / scale) + e.zero_point, lo, hi)
        return ((codes - e.zero_point).astype(np.float32) * scale).astype(np.float64)

    def convolve(x, w, pad):
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
        return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))

    worst = 0
    for sample, got in zip(samples, nets.run(quantized.model, samples, False), strict=True):
        x = fake(sample["x"], "x")
        branches = [
            fake(convolve(x, constants[w].real(), 1), y) for w, y in (("w1", "c1"), ("w2", "c2"))
        ]
        joined = fake(np.concatenate(branches, axis=1), "j")
        pooled = fake(joined.reshape(1, 8, 4, 2, 4, 2).max(axis=(3, 5)), "m")
        y = fake(convolve(pooled, constants["w3"].real(), 0), "y")
        worst = max(worst, np.abs(y - got).max() / known["y"].scale)
    # One s16 step: float32 sums may round to both sides of a half.
    assert worst <= 1.01
