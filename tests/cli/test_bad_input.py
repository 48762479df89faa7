"""Bad input: one clear line, the right exit code, nothing under a final name."""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from console_run import process, run
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli.entry import BUG_CODE

Maker = Callable[[Path, Path], list[object]]
"""A folder for files and the good model -> the arguments of build, the output left out."""


def truncated(folder: Path, model: Path) -> list[object]:
    path = folder / "cut.onnx"
    path.write_bytes(model.read_bytes()[:-300])
    return [path, "--target", "ax650n", "--calib", "random:4"]


def not_onnx(folder: Path, model: Path) -> list[object]:
    path = folder / "text.onnx"
    path.write_text("not a model")
    return [path, "--target", "ax650n", "--calib", "random:4"]


def nan_weights(folder: Path, model: Path) -> list[object]:
    proto = onnx.load(model)
    weight = proto.graph.initializer[0]
    array = numpy_helper.to_array(weight).copy()
    array.flat[2] = np.nan
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    path = folder / "nan.onnx"
    onnx.save(proto, path)
    return [path, "--target", "ax650n", "--calib", "random:4"]


def unsupported(folder: Path, model: Path) -> list[object]:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"], "sum")],
        "g",
        [value("x", TensorProto.FLOAT, [1, 8])],
        [value("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.array(1, np.int64), "axis")],
    )
    path = folder / "cumsum.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return [path, "--target", "ax650n", "--calib", "random:4"]


def empty_archive(folder: Path, model: Path) -> list[object]:
    path = folder / "empty.zip"
    zipfile.ZipFile(path, "w").close()
    return [model, "--target", "ax650n", "--calib", path]


def broken_archive(folder: Path, model: Path) -> list[object]:
    path = folder / "broken.tar.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00broken")
    return [model, "--target", "ax650n", "--calib", path]


def four_channels(folder: Path, model: Path) -> list[object]:
    path = folder / "rgba.npy"
    np.save(path, np.zeros((4, 16, 16, 4), np.uint8))
    return [model, "--target", "ax650n", "--calib", path]


def unknown_key(folder: Path, model: Path) -> list[object]:
    path = folder / "build.toml"
    path.write_text('target = "ax650n"\n[calibration]\nsampels = 3\n')
    return [model, "--config", path, "--calib", "random:4"]


def with_arguments(*arguments: object) -> Maker:
    return lambda folder, model: [model, *arguments]


def missing_model(folder: Path, model: Path) -> list[object]:
    return [folder / "smal.onnx", "--target", "ax650n", "--calib", "random:4"]


CHIP = ("--target", "ax650n")

CASES: dict[str, tuple[Maker, str]] = {
    "missing model": (missing_model, "no file"),
    "truncated": (truncated, "not an ONNX model, or is truncated"),
    "not ONNX": (not_onnx, "not an ONNX model"),
    "NaN weights": (nan_weights, "w0"),
    "nothing supported": (unsupported, "no node of the model can run on the NPU; CumSum"),
    "unknown target": (with_arguments("--target", "ax650"), "did you mean 'ax650n'"),
    "unknown mode": (with_arguments(*CHIP, "--npu-mode", "NPU9"), "NPU"),
    "no target": (with_arguments("--calib", "random:4"), "--target"),
    "no calibration": (with_arguments(*CHIP), "--calib"),
    "no such data": (with_arguments(*CHIP, "--calib", "nowhere"), "'nowhere'"),
    "empty archive": (empty_archive, "no pictures"),
    "broken archive": (broken_archive, "not a readable archive"),
    "four channels": (four_channels, "3 channels, this has 4"),
    "unknown key": (unknown_key, "'calibration.sampels'; did you mean 'samples'?"),
    "unknown observer": (
        with_arguments(*CHIP, "--calib", "random:4", "--observer", "minmx"),
        "did you mean 'minmax'?",
    ),
    "unknown preset": (
        with_arguments(*CHIP, "--calib", "random:4", "--preprocess", "imagnet"),
        "did you mean 'imagenet'?",
    ),
    "mean is no number": (with_arguments(*CHIP, "--mean", "1,x"), "--mean '1,x'"),
    "size is no size": (with_arguments(*CHIP, "--size", "2by2"), "--size '2by2'"),
    "shapes are no shapes": (with_arguments(*CHIP, "--input-shapes", "1x3"), "--input-shapes"),
    "zero std": (with_arguments(*CHIP, "--calib", "random:4", "--std", "0"), "above zero"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_nothing_left(
    case: str, classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker, words = CASES[case]
    output = tmp_path / "deep" / "out"
    outcome = run(capsys, "build", *maker(tmp_path, classifier), "-o", output)
    assert outcome.code == 1, outcome.err
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert re.match(r"tilewright: error\[TW-\d{4}\]: ", lines[0])
    assert words in lines[0]
    assert BUG_CODE not in lines[0]
    assert outcome.out == ""
    assert not output.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "m.onnx", "--targt", "x"], "did you mean --target?"),
        (["build", "m.onnx", "--obsever", "x"], "did you mean --observer?"),
        (["build", "m.onnx", "--no-bias"], "did you mean --no-bias-correction?"),
        (["run", "x", "--threads", "-2"], "--threads"),
        (["evaluate", "x", "--samples", "0"], "--samples"),
        (["buld"], "did you mean 'build'?"),
        (["build"], "missing argument"),
        (["run", "x", "--repeat", "0"], "--repeat"),
    ],
)
def test_wrong_usage_is_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(capsys, *arguments)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert outcome.err.startswith("tilewright: error[TW-2100]: ")
    assert words in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "{model}", *CHIP, "--calib", "random:4", "-o", "{model}"], "{model}: a file"),
        (["optimize", "{model}", "-o", "{folder}"], "{folder}: a folder"),
        (["optimize", "{model}", "-o", "{folder}/no/x.onnx"], "{folder}/no/x.onnx: no such"),
        (["optimize", "{model}", "-o", "{folder}/" + "n" * 300], "the name is too long"),
        (["init", "{model}", "-o", "{folder}/no/x.toml"], "{folder}/no/x.toml: no such"),
    ],
)
def test_the_output_that_cannot_be_is_named(
    arguments: list[str],
    words: str,
    classifier: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"model": str(classifier), "folder": str(tmp_path)}
    outcome = run(capsys, *(a.format(**names) for a in arguments))
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert words.format(**names) in outcome.err
    assert BUG_CODE not in outcome.err
    assert list(tmp_path.iterdir()) == [classifier]


def test_models_of_other_inputs_are_not_compared(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for axis, size in ((1, 1), (2, 24)):
        proto = onnx.load(classifier)
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
        onnx.save(proto, tmp_path / "other.onnx")
        models = (classifier, tmp_path / "other.onnx")
        outcome = run(capsys, "evaluate", *models, "--data", "random:4")
        assert outcome.code == 1
        assert "TW-1232" in outcome.err
        assert "'image'" in outcome.err


def test_errors_are_objects_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "simulate", "nowhere.onnx", "--json")
    assert outcome.code == 1
    assert outcome.object["error"]["code"] == "TW-1301"
    assert "nowhere.onnx" in outcome.object["error"]["message"]


def test_a_bug_of_ours_is_one_line_with_its_traceback_in_a_file(
    classifier: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("something unforeseen")

    monkeypatch.setattr("tilewright.importer.import_model", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ["build", classifier, *CHIP, "--calib", "random:4", "-o", tmp_path / "out"]
    outcome = run(capsys, *arguments)
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert "this is a bug in Tilewright (KeyError: 'something unforeseen')" in outcome.err
    saved = re.search(r"traceback is in (\S+),", outcome.err)
    assert saved is not None
    assert "in broken" in Path(saved[1]).read_text()
    assert not (tmp_path / "out").exists()
    shown = run(capsys, "--debug", *arguments)
    assert "Traceback" in shown.err


def small_files() -> None:
    """Files of more than 2 KiB cannot be written: what a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


def test_a_full_disk_leaves_nothing(classifier: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["build", classifier, *CHIP, "--calib", "random:4", "-o", output]
    started = process(*arguments, preexec_fn=small_files)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 1
    assert "error[TW-5001]" in err
    assert ".partial" not in err
    assert len(err.splitlines()) == 1, err
    assert not output.exists()


def test_ctrl_c_during_calibration_leaves_nothing(classifier: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["build", classifier, *CHIP, "--calib", "random:100000", "--samples", "100000"]
    started = process(*arguments, "-o", output)
    deadline = time.monotonic() + 60
    while not list(output.glob(".partial-*/optimized.onnx")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert err.startswith("tilewright: error[TW-0130]: interrupted")
    assert len(err.splitlines()) == 1, err
    assert not output.exists()


def test_ctrl_c_before_the_tool_has_started_is_quiet() -> None:
    code = (
        "import os, signal, sys\n"
        "import tilewright.__main__ as start\n"
        "interrupt = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, type('Finder', (), {'find_spec': staticmethod(interrupt)}))\n"
        "start.main()\n"
    )
    started = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == -signal.SIGINT
    assert started.stderr == ""
