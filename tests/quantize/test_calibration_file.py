"""Statistics of a calibration: what they depend on, as a file, and used again."""

from __future__ import annotations

import dataclasses
import io
import pickle
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import quantize_nets as nets
from test_transformer_precision import post_norm

from tilewright.config import CalibrationConfig, Override, QuantizationConfig
from tilewright.errors import QuantizationError
from tilewright.quantize import (
    Scheme,
    calibrate_model,
    load_calibration,
    quantize_model,
    resolve_scheme,
    save_calibration,
)
from tilewright.quantize import calibrate as calibrate_module
from tilewright.quantize.algorithms import channel_scales as channel_scales_module
from tilewright.quantize.observers import OBSERVERS
from tilewright.quantize.scheme import ObserverChoice
from tilewright.targets import load_target

CHIPS = ("ax650n", "a311d", "tda4vm")
NETS = {"classifier": nets.classifier, "detector": nets.detector, "transformer": post_norm}


def scheme_of(chip, observer="percentile", **settings):
    quantization = QuantizationConfig(**settings)
    return resolve_scheme(
        load_target(chip).numeric, quantization, CalibrationConfig(observer=observer)
    )


def model_bytes(quantized):
    return ir.to_proto(quantized.model).SerializeToString(deterministic=True)


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
@pytest.mark.parametrize("name", OBSERVERS)
def test_no_rule_of_a_target_enters_the_statistics(net, name, tmp_path):
    net = net()
    schemes = [scheme_of(chip, name) for chip in CHIPS]
    schemes += [scheme_of("tda4vm", name, power_of_two=True, outputs="same", activations="s16")]
    found = set()
    for i, scheme in enumerate(schemes):
        save_calibration(
            calibrate_model(net, nets.feeds(net, 4), scheme), tmp_path / f"found{i}.npz"
        )
        found.add((tmp_path / f"found{i}.npz").read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
@pytest.mark.parametrize("observer", ["auto", *OBSERVERS])
def test_models_from_stored_and_from_fresh_statistics_are_equal(
    net, observer, tmp_path, monkeypatch
):
    net = net()
    samples = nets.feeds(net, 6)
    path = tmp_path / "calibration.npz"
    save_calibration(calibrate_model(net, samples, scheme_of("ax650n", observer)), path)
    schemes = [scheme_of(chip, observer) for chip in CHIPS]
    fresh = [model_bytes(quantize_model(net, samples, scheme)) for scheme in schemes]
    for module in (calibrate_module, channel_scales_module):
        monkeypatch.setattr(module, "Session", None)
    for scheme, expected in zip(schemes, fresh, strict=True):
        again = quantize_model(net, samples, scheme, calibration=load_calibration(path))
        assert model_bytes(again) == expected
    assert len(set(fresh)) == len(CHIPS)


def test_equalised_models_and_overrides_share_statistics_too(tmp_path):
    net = nets.classifier()
    samples = nets.feeds(net, 6)
    settings = {
        "equalization": True,
        "overrides": (Override(op="Add", observer="kl"), Override(name="head", activations="s16")),
    }
    path = tmp_path / "calibration.npz"
    save_calibration(calibrate_model(net, samples, scheme_of("ax650n", **settings)), path)
    scheme = scheme_of("tda4vm", **settings)
    again = quantize_model(net, samples, scheme, calibration=load_calibration(path))
    fresh = quantize_model(net, samples, scheme)
    assert model_bytes(again) == model_bytes(fresh)
    assert again.report.notes == fresh.report.notes
    assert again.report.warnings == fresh.report.warnings


def test_factors_of_normalisations_come_back_with_their_bits(tmp_path):
    net = post_norm()
    found = calibrate_model(net, nets.feeds(net, 3), Scheme())
    save_calibration(found, tmp_path / "calibration.npz")
    assert found.smoothing
    again = load_calibration(tmp_path / "calibration.npz")
    assert leaves(again.smoothing) == leaves(found.smoothing)


def test_every_array_comes_back_with_its_bits(tmp_path):
    net = nets.detector()
    mixed = Scheme(
        observer=ObserverChoice("minmax"), overrides=(Override(op="Mul", observer="mse"),)
    )
    found = calibrate_model(net, nets.feeds(net, 3), mixed)
    save_calibration(found, tmp_path / "calibration.npz")
    again = load_calibration(tmp_path / "calibration.npz")
    assert {type(s.histogram) for s in found.statistics.values()} > {type(None)}
    assert found.pre_activations["logits"] and found.channel_tops and found.means
    assert leaves(dataclasses.asdict(again)) == leaves(dataclasses.asdict(found))


def leaves(value):
    """Nested content with arrays as (type, shape, bytes)."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(key, leaves(item)) for key, item in value.items()]
    return [leaves(item) for item in value] if isinstance(value, list) else value


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class Trap:
    """Unpickling it raises."""

    def __reduce__(self):
        return pytest.fail, ("a pickled object was loaded",)


FOREIGN = {
    "empty": b"",
    "text": b"not an archive",
    "pickle": pickle.dumps(Trap()),
    "one array": archive(x=np.zeros(3))[:-40],
    "another archive": archive(x=np.zeros(3)),
    "pickled header": archive(header=np.array([Trap()], object)),
    "header of something else": archive(header=np.frombuffer(b"[1, 2]", np.uint8)),
    "arrays missing": archive(
        header=np.frombuffer(b'{"samples": 1, "values": ["x"], "histograms": {}}', np.uint8)
    ),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=list(FOREIGN))
def test_another_file_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "calibration.npz"
    path.write_bytes(content)
    with pytest.raises(QuantizationError, match="does not hold the statistics") as raised:
        load_calibration(path)
    assert raised.value.code == "TW-3122"
