from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import quantize_nets as nets
from onnx import helper

from tilewright.config import CalibrationConfig, Override, QuantizationConfig
from tilewright.errors import ConfigError, DataError, QuantizationError, UnsupportedError
from tilewright.graph import DType
from tilewright.quantize import Scheme, quantize_model, resolve_scheme, strip
from tilewright.quantize.observers import OBSERVERS
from tilewright.quantize.scheme import ObserverChoice, WeightType
from tilewright.quantize.sessions import ordered_map
from tilewright.targets import NumericRules

PLAIN = Scheme(bias_correction=False, observer=ObserverChoice("minmax"))
RULES = NumericRules(
    activation_types=("u8", "s8", "s16"), default_activation="u8", symmetric=False,
    weight_types=("s8", "u8"), per_channel=True, per_channel_allowed=True, power_of_two=False,
    concat_same_scale=False, rounding="r24",
)  # fmt: skip


def test_ranges_are_those_of_the_tensors():
    net = nets.classifier()
    samples = nets.feeds(net)
    found = quantize_model(net, samples, PLAIN).report.ranges
    exposed = net.clone()
    value = next(v for n in exposed.graph for v in n.outputs if v.name == "a")
    exposed.graph.outputs.append(value)
    session = nets.session(exposed)
    arrays = [session.run(["a"], s)[0] for s in samples]
    assert found["a"].low == pytest.approx(min(a.min() for a in arrays), rel=1e-5)
    assert found["a"].high == pytest.approx(max(a.max() for a in arrays), rel=1e-5)


@pytest.mark.parametrize("name", OBSERVERS)
def test_every_observer_makes_a_usable_model(name):
    net = nets.classifier()
    samples = nets.feeds(net, 6)
    made = quantize_model(net, samples, dataclasses.replace(PLAIN, observer=ObserverChoice(name)))
    # Two and a half thousand values a tensor are few for the KL divergence, which cuts a lot.
    floor = 5 if name == "kl" else 15
    assert nets.sqnr(nets.run(net, samples), nets.run(made.model, samples)) > floor


def test_an_iterator_is_enough():
    net = nets.classifier()
    once = quantize_model(net, iter(nets.feeds(net)), Scheme()).report
    again = quantize_model(net, nets.feeds(net), Scheme()).report
    assert once.encodings == again.encodings


def test_progress_counts_samples():
    seen = []
    net = nets.classifier()
    quantize_model(net, nets.feeds(net, 5), Scheme(), progress=lambda *a: seen.append(a))
    assert [(s, d, t) for s, d, t in seen if s == "calibrate"] == [
        ("calibrate", i, 5) for i in range(1, 6)
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_names_tensor_and_sample(bad):
    net = nets.classifier()
    samples = nets.feeds(net, 4)
    samples[2]["x"][0, 1, 3, 3] = bad
    with pytest.raises(QuantizationError, match=r"tensor x holds NaN or infinite.*sample 2"):
        quantize_model(net, samples, PLAIN)


def test_an_overflow_inside_the_model_names_its_tensor():
    constants = {"w": np.full((2, 3, 1, 1), 60, np.float32)}
    nodes = [nets.conv("x", "w", "c", kernel=1), helper.make_node("Exp", ["c"], ["y"])]
    net = nets.model(nodes, {"x": (1, 3, 4, 4)}, ["y"], constants)
    samples = [{"x": np.full((1, 3, 4, 4), v, np.float32)} for v in (0.0, 9.0)]
    with pytest.raises(QuantizationError, match=r"tensor y holds NaN or infinite.*sample 1"):
        quantize_model(net, samples, PLAIN)


def test_weights_that_are_not_finite():
    net = nets.classifier()
    array = nets.constant(net, "w3")
    array[0, 0] = np.nan
    nets.set_constant(net, "w3", array)
    with pytest.raises(QuantizationError, match="NaN"):
        quantize_model(net, nets.feeds(net), PLAIN)


def test_no_samples_and_missing_inputs():
    net = nets.classifier()
    with pytest.raises(DataError, match="no calibration samples"):
        quantize_model(net, [], PLAIN)
    with pytest.raises(DataError, match="'x'"):
        quantize_model(net, [{"image": np.zeros((1, 3, 16, 16), np.float32)}], PLAIN)


def test_a_model_without_supported_operators():
    constants = {"axis": np.array(1, np.int64)}
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    net = nets.model([node], {"x": (1, 4)}, ["y"], constants)
    with pytest.raises(UnsupportedError, match="CumSum"):
        quantize_model(net, nets.feeds(net), PLAIN)


def test_warnings_name_dead_channels_and_single_samples():
    net = nets.classifier()
    array = nets.constant(net, "b1")
    array[:3] = -1e3
    nets.set_constant(net, "b1", array)
    samples = nets.feeds(net, 8)
    assert {w.code for w in quantize_model(net, samples, PLAIN).report.warnings} == {
        "dead-channels"
    }
    samples[5]["x"] *= 10
    codes = {w.code for w in quantize_model(net, samples, PLAIN).report.warnings}
    assert codes == {"dead-channels", "one-sample-range"}


def test_results_come_in_order_and_few_items_are_held():
    taken = []

    def items():
        for i in range(50):
            taken.append(i)
            yield i

    for done, result in enumerate(ordered_map(lambda i: i * i, items())):
        assert result == done * done
        assert len(taken) - done < 12


def test_an_error_in_a_sample_reaches_the_caller():
    def fail(i):
        if i == 3:
            raise DataError("bad sample")
        return i

    with pytest.raises(DataError, match="bad sample"):
        list(ordered_map(fail, range(20)))


def test_the_configuration_overrides_the_target():
    scheme = resolve_scheme(RULES, QuantizationConfig(), CalibrationConfig(observer="mse"))
    assert scheme.activations.dtype is DType.U8
    assert scheme.weights == WeightType(DType.S8, True, False)
    assert scheme.observer.name == "mse"
    own = QuantizationConfig(
        activations="s8", symmetric_activations=True, power_of_two=True, per_channel=False,
        outputs="same", bias_correction=False,
    )  # fmt: skip
    scheme = resolve_scheme(RULES, own, CalibrationConfig())
    assert scheme.activations.symmetric
    assert scheme.activations.power_of_two
    assert scheme.weights == WeightType(DType.S8, False, True)
    assert (scheme.outputs, scheme.bias_correction) == ("same", False)
    assert "power-of-two" in scheme.text()


def test_u8_weights_per_channel_are_refused():
    config = QuantizationConfig(weights="u8", per_channel=True)
    with pytest.raises(ConfigError, match="per tensor"):
        resolve_scheme(RULES, config, CalibrationConfig())


def test_overrides_by_name_and_by_operator():
    scheme = dataclasses.replace(
        PLAIN,
        overrides=(
            Override(op="Add", activations="s16"),
            Override(name="n0_Conv", weights="u8"),
        ),
    )
    net = nets.classifier()
    made = quantize_model(net, nets.feeds(net), scheme)
    assert made.report.encodings["a"].dtype is DType.S16
    assert made.report.encodings["r1"].dtype is DType.U8
    weights = {n.outputs[0].name: n for n in nets.by_op(made.model, "DequantizeLinear")}
    assert weights["w1"].inputs[0].dtype.name == "UINT8"
    assert weights["w2"].inputs[0].dtype.name == "INT8"


@pytest.mark.parametrize(
    ("override", "near"),
    [(Override(name="haed", activations="s16"), "head"), (Override(op="Cnv"), "Conv")],
)
def test_an_override_that_names_nothing_is_an_error(override, near):
    scheme = dataclasses.replace(PLAIN, overrides=(override,))
    net = nets.classifier()
    with pytest.raises(ConfigError, match=near):
        quantize_model(net, nets.feeds(net), scheme)


def test_weights_and_inputs_near_the_smallest_float_stay_valid():
    net = nets.classifier()
    for name, factor in (("w2", 1e-36), ("b2", 0.0)):
        nets.set_constant(net, name, nets.constant(net, name) * factor)
    samples = [{"x": s["x"] * np.float32(1e-6)} for s in nets.feeds(net)]
    made = quantize_model(net, samples, Scheme()).model
    assert strip(made).encodings
    assert np.isfinite(nets.run(made, samples)).all()
