from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import quantize_nets as nets
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tilewright.graph import DType
from tilewright.quantize import Scheme, quantize_model
from tilewright.quantize.encodings import interpolation_error
from tilewright.quantize.ranges import ActivationType, Range, real_range
from tilewright.quantize.scheme import ObserverChoice

PLAIN = Scheme(bias_correction=False, observer=ObserverChoice("minmax"))


def report(net, scheme=PLAIN, samples=None):
    return quantize_model(net, samples or nets.feeds(net), scheme).report


def test_branches_of_like_range_share_the_scale_of_a_concat():
    known = report(nets.two_branches(1.5)).encodings
    assert known["c1"] == known["c2"] == known["j"] == known["m"]


def test_branches_of_unlike_range_keep_their_own():
    found = report(nets.two_branches(6.0))
    known = found.encodings
    assert known["c1"] != known["j"]
    assert known["c2"] == known["j"] == known["m"]
    assert real_range(known["c1"]).width == pytest.approx(found.ranges["c1"].width, rel=0.02)


def test_the_scale_of_a_concat_holds_its_constant_inputs_too():
    rng = np.random.default_rng(4)
    constants = nets.arrays(rng, w1=(4, 3, 3, 3), w3=(4, 8, 1, 1))
    constants["k"] = np.full((1, 4, 8, 8), 40.0, np.float32)
    nodes = [
        nets.conv("x", "w1", "c1"),
        helper.make_node("Concat", ["c1", "k"], ["j"], axis=1),
        nets.conv("j", "w3", "y", kernel=1),
    ]
    known = report(nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)).encodings
    assert real_range(known["j"]).high >= 40.0 * 0.999


def test_a_target_may_want_one_scale_whatever_the_ranges():
    known = report(
        nets.two_branches(6.0), dataclasses.replace(PLAIN, concat_same_scale=True)
    ).encodings
    assert known["c1"] == known["c2"] == known["j"]


def test_a_joined_output_of_mixed_range_is_cut_before_the_concat():
    found = report(nets.detector(50.0))
    assert {row.op for row in found.cpu} == {"Concat", "Reshape", "Transpose"}
    assert any("join" in note and "CPU" in note for note in found.notes)
    assert found.encodings["boxes"].dtype is DType.S16
    assert found.encodings["scores"].dtype is DType.S16
    assert found.encodings["boxes"].scale > 20 * found.encodings["scores"].scale
    assert "joined" not in found.encodings


def test_a_joined_output_of_like_range_stays_on_the_npu_at_16_bits():
    found = report(nets.detector(1.0))
    assert not found.cpu
    assert found.encodings["y"].dtype is DType.S16


def test_each_branch_of_a_cut_output_is_as_good_as_alone():
    net = nets.detector(50.0)
    samples = nets.feeds(net)
    made = quantize_model(net, samples, PLAIN).model
    exact, got = nets.run(net, samples), nets.run(made, samples)
    for part in (slice(0, 4), slice(4, 6)):
        assert nets.sqnr(exact[..., part], got[..., part]) > 30


def test_network_outputs_have_room_beyond_the_calibrated_range():
    found = report(nets.classifier())
    y = found.encodings["y"]
    assert y.dtype is DType.S16
    assert y.scale * 32767 == pytest.approx(2 * found.ranges["y"].reach, rel=1e-5)


def test_outputs_may_keep_8_bits():
    assert (
        report(nets.classifier(), dataclasses.replace(PLAIN, outputs="same"))
        .encodings["y"]
        .dtype.is_8_bit
    )


def test_a_pre_activation_before_a_table_is_symmetric_s16():
    found = report(nets.detector())
    inner = found.encodings["c1"]
    assert (inner.dtype, inner.zero_point) == (DType.S16, 0)
    assert inner.scale * 32767 == pytest.approx(found.ranges["c1"].reach, rel=1e-5)


def test_a_steep_table_falls_back_to_8_bits():
    constants = nets.arrays(np.random.default_rng(0), w=(2, 3, 1, 1))
    constants["w"] *= 8
    nodes = [nets.conv("x", "w", "c", kernel=1), helper.make_node("Exp", ["c"], ["y"])]
    net = nets.model(nodes, {"x": (1, 3, 4, 4)}, ["y"], constants)
    made = quantize_model(net, nets.feeds(net), PLAIN)
    assert made.report.encodings["c"].dtype.is_8_bit


def test_the_range_of_a_clamped_result_follows_the_clamp():
    known = report(nets.classifier()).encodings
    low, high = real_range(known["r2"])
    assert low == 0
    assert high == pytest.approx(1.5, rel=1e-4)


def test_movement_between_cpu_nodes_is_not_quantized():
    constants = {"shape": np.array([1, 64], np.int64), "axes": np.array([1], np.int64)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("CumSum", ["r", "axis"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["f"], name="idle"),
        helper.make_node("CumSum", ["f", "axis"], ["y"]),
    ]
    constants["axis"] = np.array(1, np.int64)
    del constants["axes"]
    found = report(nets.model(nodes, {"x": (1, 4, 4, 4)}, ["y"], constants))
    assert "idle" in {row.name for row in found.cpu}
    assert not {"c", "f"} & set(found.encodings)


def test_a_cpu_value_that_the_npu_reads_is_quantized_for_the_npu_alone():
    constants = {"axis": np.array(1, np.int64)}
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["c"]),
        helper.make_node("Add", ["c", "c"], ["a"]),
        helper.make_node("CumSum", ["c", "axis"], ["y"], name="reader"),
    ]
    net = nets.model(nodes, {"x": (1, 4, 4, 4)}, ["a", "y"], constants)
    made = quantize_model(net, nets.feeds(net), PLAIN).model
    reader = next(n for n in made.graph if n.name == "reader")
    assert reader.inputs[0].name == "c"
    assert [n.inputs[0].name for n in nets.by_op(made, "QuantizeLinear")] == ["c", "a_float"]


REALS = st.floats(-1e4, 1e4, width=32)
KINDS = [
    ActivationType(d, s, p)
    for d in (DType.U8, DType.S8, DType.S16)
    for s in (False, True)
    for p in (False, True)
]


@given(REALS, REALS, st.sampled_from(KINDS))
def test_codes_span_the_range_to_within_a_step(a, b, kind):
    reals = Range(min(a, b, 0.0), max(a, b, 0.0))
    encoding = kind.encode(reals)
    low, high = real_range(encoding)
    lo, hi = encoding.dtype.range
    assert lo <= encoding.zero_point <= hi
    if reals.width > 1e-30:
        assert low <= reals.low + encoding.scale
        assert high >= reals.high - encoding.scale
    if kind.power_of_two and reals.width > 0:
        assert np.frexp(encoding.scale)[0] == 0.5
    if kind.symmetric:
        assert encoding.zero_point in (0, 128)


def test_the_interpolation_error_of_a_parabola_is_known():
    scale = 1e-3
    step = 128 * scale
    assert interpolation_error(lambda x: x * x, scale) == pytest.approx(step**2 / 4, rel=1e-6)


def test_a_dead_layer_gets_a_range_that_its_rescale_can_reach():
    constants = nets.arrays(np.random.default_rng(0), w1=(4, 3, 3, 3), w2=(4, 4, 1, 1), b2=(4,))
    constants["b1"] = np.full(4, -1e3, np.float32)
    constants["b2"] *= 1e-20
    nodes = [
        nets.conv("x", "w1", "c1", bias="b1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        nets.conv("r1", "w2", "c2", kernel=1, bias="b2"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        nets.conv("r2", "w2", "y", kernel=1),
    ]
    net = nets.model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)
    made = quantize_model(net, nets.feeds(net), Scheme())
    known = made.report.encodings
    weight = nets.constant(made.model, "w2_scale").max()
    assert known["r1"].scale * weight / known["r2"].scale < 2**22


def test_an_average_pool_between_pairs_loads_in_onnxruntime():
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node(
            "AveragePool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4,
            dilations=[1, 1], ceil_mode=0, count_include_pad=0,
        ),
        helper.make_node("Add", ["p", "p"], ["y"]),
    ]  # fmt: skip
    net = nets.model(nodes, {"x": (1, 4, 4, 4)}, ["y"], {})
    samples = nets.feeds(net)
    made = quantize_model(net, samples, dataclasses.replace(PLAIN, outputs="same")).model
    assert nets.sqnr(nets.run(net, samples), nets.run(made, samples)) > 30
