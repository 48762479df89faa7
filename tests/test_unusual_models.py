"""Unusual but valid models, built whole: three executions agree, and stay near the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import tilewright
from small_models import save_photos
from tilewright.errors import DataError

SAMPLES = 16
CONV = "p = Conv<pads=[1,1,1,1]>(x, w) "
ASK = "top = ReduceMax<keepdims=0>(x) ask = Greater(top, zero) "
SIZE = "(float[1,4,8,8] x)"


def model(
    folder: Path, outputs: str, body: str, inputs: str = SIZE, **constants: Any
) -> tuple[Path, onnx.ModelProto]:
    """A model in ONNX's text form; `w` is a square 3x3 weight, `zero` is 0."""
    rng = np.random.default_rng(3)
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    proto = parser.parse_model(f"{header} g {inputs} => ({outputs}) {{ {body} }}")
    arrays = {"w": rng.normal(0, 0.2, (4, 4, 3, 3)), "zero": np.zeros(1), **constants}
    for name, array in arrays.items():
        array = np.asarray(array)
        kept = array if array.dtype.kind in "iub" else array.astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(kept, name))
    path = folder / "odd.onnx"
    onnx.save(proto, path)
    return path, proto


def ratio_in_decibels(path: Path, folder: Path, shape: tuple[int, ...] = (1, 4, 8, 8)) -> float:
    """Build, which compares the executions, then the smallest ratio of any output."""
    samples = np.random.default_rng(5).standard_normal((SAMPLES, *shape)).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    build = tilewright.build(
        path, target="ax650n", calibration=folder / "samples.npz", output=folder / "out"
    )
    float_session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session = tilewright.InferenceSession(build.compiled)
    signal: dict[str, float] = {}
    noise: dict[str, float] = {}
    names = [o.name for o in float_session.get_outputs()]
    for x in samples:
        wanted = float_session.run(names, {"x": x})
        for name, right, found in zip(names, wanted, session.run(names, {"x": x}), strict=True):
            assert right.shape == found.shape
            signal[name] = signal.get(name, 0.0) + float(np.square(right).sum())
            noise[name] = noise.get(name, 1e-12) + float(np.square(right - found).sum())
    return min(10 * np.log10(signal[name] / noise[name]) for name in names)


BRANCHES = {
    "a tensor that one branch alone reads": (
        "then_branch = t () => (float[1,4,8,8] t1) { t1 = Relu(p) }, "
        "else_branch = e () => (float[1,4,8,8] e1) { e1 = Conv<pads=[1,1,1,1]>(x, w) }"
    ),
    "a tensor that only branches read": (
        "then_branch = t () => (float[1,4,8,8] t1) { t1 = Relu(p) }, "
        "else_branch = e () => (float[1,4,8,8] e1) { e1 = Neg(p) }"
    ),
    "a weight that branches alone read": (
        "then_branch = t () => (float[1,4,8,8] t1) { t1 = Conv<pads=[1,1,1,1]>(p, v) }, "
        "else_branch = e () => (float[1,4,8,8] e1) { "
        "e1 = If(ask)<then_branch = a () => (float[1,4,8,8] a1) { a1 = Relu(x) }, "
        "else_branch = b () => (float[1,4,8,8] b1) { b1 = Add(p, v2) }> }"
    ),
}


@pytest.mark.parametrize("branches", BRANCHES.values(), ids=BRANCHES)
def test_branches_capture_what_the_npu_makes(branches: str, tmp_path: Path) -> None:
    body = f"{CONV} {ASK} q = If(ask)<{branches}> r = Conv<pads=[1,1,1,1]>(q, w) y = Add(r, p)"
    inner = np.random.default_rng(4).normal(0, 0.2, (4, 4, 3, 3))
    path, _ = model(tmp_path, "float[1,4,8,8] y", body, v=inner, v2=inner[:1, :, :1, :1])
    assert ratio_in_decibels(path, tmp_path) > 30


def test_a_loop_captures_tensors_and_constants(tmp_path: Path) -> None:
    loop = (
        "q = Loop(trips, go, p)<body = b (int64 i, bool c, float[1,4,8,8] a) => "
        "(bool d, float[1,4,8,8] o) { d = Identity(c) s = Add(a, x) o = Mul(s, half) }>"
    )
    path, _ = model(
        tmp_path,
        "float[1,4,8,8] y",
        f"{CONV} {loop} y = Relu(q)",
        trips=np.array(3, np.int64),
        go=np.array(True),
        half=np.full(1, 0.5),
    )
    assert ratio_in_decibels(path, tmp_path) > 30


def test_a_concat_of_functions_with_given_ranges_alone(tmp_path: Path) -> None:
    body = "a = Sigmoid(x) b = Tanh(x) y = Concat<axis=1>(a, b)"
    path, _ = model(tmp_path, "float[1,8,8,8] y", body)
    assert ratio_in_decibels(path, tmp_path) > 30


def test_indices_that_only_leave_the_model(tmp_path: Path) -> None:
    body = f"{CONV} y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(p) s = Shape(i)"
    path, _ = model(tmp_path, "float[1,4,4,4] y, int64[1,4,4,4] i", body)
    np.save(tmp_path / "samples.npy", np.ones((2, 1, 4, 8, 8), np.float32))
    build = tilewright.build(
        path, target="ax650n", calibration=tmp_path / "samples.npy", output=tmp_path / "out"
    )
    assert [n.op for n in build.report().nodes_cpu] == ["MaxPool"]


def test_a_shape_that_is_computed_stays_on_the_cpu(tmp_path: Path) -> None:
    body = f"{CONV} y = Pad(p, s) z = Relu(y)"
    path, _ = model(tmp_path, "float[a,b,c,d] z", body, "(float[1,4,8,8] x, int64[8] s)")
    samples = {"x": np.ones((2, 1, 4, 8, 8), np.float32), "s": np.ones((2, 8), np.int64)}
    np.savez(tmp_path / "samples.npz", **samples)
    build = tilewright.build(
        path, target="ax650n", calibration=tmp_path / "samples.npz", output=tmp_path / "out"
    )
    assert [n.op for n in build.report().nodes_cpu] == ["Pad", "Relu"]


def test_external_data_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proto = model(tmp_path, "float[1,4,8,8] y", "y = Conv<pads=[1,1,1,1]>(x, w)")
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert ratio_in_decibels(path, tmp_path) > 30


def test_clips_whose_bounds_cross_give_the_upper_one(tmp_path: Path) -> None:
    body = f"{CONV} a = Clip(p, two, one) y = Mul(a, x)"
    path, _ = model(tmp_path, "float[1,4,8,8] y", body, one=np.float32(1), two=np.float32(2))
    assert ratio_in_decibels(path, tmp_path) > 30


def test_a_negative_variance_stays_on_the_cpu(tmp_path: Path) -> None:
    body = f"{CONV} q = Add(p, p) r = BatchNormalization(q, v, v, v, n) y = Cast<to=9>(r)"
    path, _ = model(
        tmp_path, "bool[1,4,8,8] y, float[1,4,8,8] q", body, v=np.ones(4), n=-np.ones(4)
    )
    np.save(tmp_path / "samples.npy", np.ones((2, 1, 4, 8, 8), np.float32))
    build = tilewright.build(
        path, target="ax650n", calibration=tmp_path / "samples.npy", output=tmp_path / "out"
    )
    reasons = {n.op: n.reason for n in build.report().nodes_cpu}
    assert "negative" in reasons["BatchNormalization"]


@pytest.mark.parametrize("batch", [2, 4])
def test_batches_of_pictures_are_arrays(batch: int, tmp_path: Path) -> None:
    inputs = f"(float[{batch},3,8,8] x)"
    weight = np.random.default_rng(2).normal(0, 0.2, (4, 3, 3, 3))
    path, _ = model(tmp_path, f"float[{batch},4,6,6] y", "y = Conv(x, v)", inputs, v=weight)
    assert ratio_in_decibels(path, tmp_path, (batch, 3, 8, 8)) > 30
    with pytest.raises(DataError, match="a picture fills a batch of 1"):
        tilewright.build(
            path,
            target="ax650n",
            calibration=save_photos(tmp_path / "photos"),
            output=tmp_path / "out",
        )
