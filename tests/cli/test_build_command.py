"""The verbs on a small model, from building to evaluating."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from console_run import process, run

from tilewright.cli import console

FILES = [
    "build.toml", "calibration.npz", "compiled.onnx", "optimized.onnx", "quantized.onnx",
    "report.html",
]  # fmt: skip


def build(
    capsys: pytest.CaptureFixture[str], model: Path, photos: Path, out: Path, *more: object
) -> dict[str, Any]:
    outcome = run(
        capsys, "build", model, "-o", out, "--calib", photos, "--preprocess", "tf", "--json", *more
    )
    assert outcome.code == 0, outcome.err
    return outcome.object


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build for the tests that only look at it."""
    from small_models import save_photos, small_classifier

    folder = tmp_path_factory.mktemp("built")
    onnx.save(small_classifier(), folder / "small.onnx")
    save_photos(folder / "photos")
    from tilewright import build

    build(
        folder / "small.onnx",
        target="ax650n",
        npu_modes=["NPU1", "NPU3"],
        calibration=folder / "photos",
        preprocess="tf",
        output=folder / "out",
    )
    return folder


def test_build_prints_stable_fields(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    found = build(capsys, classifier, photos, out, "--target", "ax650n", "--npu-mode", "NPU1,NPU3")
    assert found["compiled"] == str(out / "compiled.onnx")
    assert found["target"] == "ax650n"
    assert set(found["seconds"]) == {"import", "calibrate", "quantize", "compile", "measure"}
    assert found["peak_mib"] > 10
    assert found["nodes_npu"] == 7
    assert found["nodes_cpu"] == []
    assert set(found["modes"]) == {"NPU1", "NPU3"}
    for mode in found["modes"].values():
        assert 0 < mode["lower_bound_cycle"] <= mode["max_cycle"]
        assert mode["latency_ms"] == pytest.approx(mode["max_cycle"] / 800e3)
        assert mode["sram_bytes"] > 0 and mode["ddr_bytes"] > 0
    assert found["sqnr_db"]["logits"] > 20
    assert found["warnings"] == []
    assert sorted(p.name for p in out.iterdir()) == [*FILES, "report.json"]


def test_nothing_changed_runs_nothing(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    build(capsys, classifier, photos, out, "--target", "ax650n")
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()}
    again = build(capsys, classifier, photos, out, "--target", "ax650n")
    assert all(s["reused"] for s in again["stages"])
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()} == before


def stages_run(found: dict[str, Any]) -> set[str]:
    return {s["name"] for s in found["stages"] if not s["reused"]}


def test_only_what_a_change_reaches_is_run(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    first = build(capsys, classifier, photos, out, "--target", "ax650n")
    assert stages_run(first) == {"import", "calibrate", "quantize", "compile", "measure"}
    mode = build(capsys, classifier, photos, out, "--target", "ax650n", "--npu-mode", "NPU2")
    assert stages_run(mode) == {"compile", "measure"}
    chip = build(capsys, classifier, photos, out, "--target", "cpu")
    assert stages_run(chip) == {"compile", "measure"}
    assert chip["modes"] == {}
    rules = build(capsys, classifier, photos, out, "--target", "a311d")
    assert stages_run(rules) == {"quantize", "compile", "measure"}
    share = build(capsys, classifier, photos, out, "--target", "a311d", "--percentile", "99")
    assert stages_run(share) == {"quantize", "compile", "measure"}
    observer = build(capsys, classifier, photos, out, "--target", "cpu", "--observer", "kl")
    assert stages_run(observer) >= {"calibrate", "quantize"}
    assert "import" not in stages_run(observer)
    (photos / "photo03.png").write_bytes((photos / "photo04.png").read_bytes())
    data = build(capsys, classifier, photos, out, "--target", "cpu", "--observer", "kl")
    assert stages_run(data) >= {"calibrate", "quantize"}


def test_a_damaged_artifact_is_made_again(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    build(capsys, classifier, photos, out, "--target", "ax650n")
    good = (out / "compiled.onnx").read_bytes()
    (out / "compiled.onnx").write_bytes(good[:-7] + b"damaged")
    again = build(capsys, classifier, photos, out, "--target", "ax650n")
    assert "compile" in stages_run(again) and "quantize" not in stages_run(again)
    assert (out / "compiled.onnx").read_bytes() == good


def test_two_builds_are_byte_identical(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--target", "ax650n", "--npu-mode", "NPU1,NPU3")
    build(capsys, classifier, photos, tmp_path / "one", *more)
    build(capsys, classifier, photos, tmp_path / "two", *more)
    for name in FILES[:5]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    texts = [run(capsys, "disasm", tmp_path / n, "--npu-mode", "NPU3").out for n in ("one", "two")]
    assert texts[0] == texts[1] and "mode" in texts[0]


def test_the_settings_repeat_the_build(
    classifier: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(capsys, classifier, photos, tmp_path / "one", "--target", "ax650n", "--observer", "mse")
    outcome = run(
        capsys, "build", classifier, "-o", tmp_path / "two", "--calib", photos,
        "--config", tmp_path / "one" / "build.toml",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    first, second = (tmp_path / n / "compiled.onnx" for n in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_compiled_model_is_onnx(built: Path) -> None:
    onnx.checker.check_model(str(built / "out" / "compiled.onnx"), full_check=True)


def test_simulate_and_run_give_the_same_bits(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = built / "photos" / "photo00.png"
    trace = tmp_path / "trace.json"
    simulated = run(
        capsys, "simulate", built / "out", "--input", photo, "--npu-mode", "NPU3",
        "--trace", trace, "-o", tmp_path / "simulated", "--json",
    ).object  # fmt: skip
    ran = run(
        capsys, "run", built / "out", "--input", photo, "-r", 3, "-w", 1, "--threads", 2,
        "-o", tmp_path / "ran", "--json",
    ).object  # fmt: skip
    assert set(simulated["latency_ms"]) == {"min", "max", "avg"}
    assert simulated["max_cycle"] >= simulated["lower_bound_cycle"] > 0
    assert ran["latency_ms"]["min"] <= ran["latency_ms"]["avg"] <= ran["latency_ms"]["max"]
    assert ran["fps"] == pytest.approx(1000 / ran["latency_ms"]["avg"])
    outputs = [np.load(found["outputs"]["logits"]) for found in (simulated, ran)]
    assert outputs[0].shape == (1, 5)
    np.testing.assert_array_equal(*outputs)
    assert json.loads(trace.read_text())["traceEvents"]


def test_classify_agrees_between_executors(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "names.txt"
    labels.write_text("ant\nbee\ncat\ndog\neel\n")
    photo = built / "photos" / "photo02.png"
    found = [
        run(
            capsys, "classify", built / "out", photo, "--by", by, "-k", 2,
            "--labels", labels, "--json",
        ).object["top"]
        for by in ("runtime", "machine", "reference")
    ]  # fmt: skip
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 2
    assert found[0][0]["name"] in ("ant", "bee", "cat", "dog", "eel")
    assert found[0][0]["probability"] >= found[0][1]["probability"]


def test_evaluate_puts_three_models_side_by_side(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.csv"
    lines = [f"photo{i:02}.png,{i % 5}" for i in range(20)]
    labels.write_text("picture,class\n" + "\n".join(lines) + "\n")
    found = run(
        capsys, "evaluate", built / "out", "--data", built / "photos",
        "--labels", labels, "--metric", "top1", "--json",
    ).object  # fmt: skip
    rows = found["models"]
    assert [r["model"] for r in rows] == ["optimized.onnx", "quantized.onnx", "compiled.onnx"]
    assert all(r["samples"] == 20 for r in rows)
    assert rows[0]["agreement"]["value"] == 1
    for row in rows:
        assert row["top1"]["low"] <= row["top1"]["value"] <= row["top1"]["high"]
        assert row["top1"]["value"] <= row["top5"]["value"] == 1
    assert rows[2]["sqnr_db"] > 20
    assert 0 <= rows[2]["mcnemar_p"] <= 1


def test_single_stages_give_the_same_program(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optimized, quantized = tmp_path / "o.onnx", tmp_path / "q.onnx"
    compiled = tmp_path / "c.onnx"
    first = run(capsys, "optimize", built / "small.onnx", "-o", optimized, "--json")
    assert first.object["float_difference"]["logits"] < 1e-5
    second = run(
        capsys, "quantize", optimized, "-o", quantized, "--target", "ax650n",
        "--calib", built / "photos", "--preprocess", "tf", "--json",
    )  # fmt: skip
    assert second.object["samples"] == 20
    third = run(capsys, "compile", quantized, "-o", compiled, "--target", "ax650n", "--json")
    assert third.object["modes"]["NPU1"]["max_cycle"] > 0
    texts = [
        run(capsys, "disasm", path, "--npu-mode", "NPU1").out for path in (compiled, built / "out")
    ]
    assert texts[0] == texts[1]
    shown = run(capsys, "classify", compiled, built / "photos" / "photo00.png", "--json")
    whole = run(capsys, "classify", built / "out", built / "photos" / "photo00.png", "--json")
    assert shown.object["top"] == whole.object["top"]


def test_a_quantized_model_is_built_without_calibration(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(
        capsys, "build", built / "out" / "quantized.onnx", "-o", tmp_path / "out",
        "--target", "ax650n", "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    texts = [
        run(capsys, "disasm", path, "--npu-mode", "NPU1").out
        for path in (tmp_path / "out", built / "out")
    ]
    assert texts[0] == texts[1]


def test_built_in_preprocessing_takes_the_picture_itself(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    build(
        capsys, built / "small.onnx", built / "photos", out, "--target", "ax650n", "--built-in",
        "--color", "BGR",
    )  # fmt: skip
    described = run(capsys, "info", out / "compiled.onnx", "--json").object
    assert described["kind"] == "compiled"
    assert described["inputs"][0]["dtype"] == "uint8"
    assert described["inputs"][0]["shape"] == [1, 16, 16, 3]
    plain = tmp_path / "plain"
    build(
        capsys, built / "small.onnx", built / "photos", plain, "--target", "ax650n",
        "--color", "BGR",
    )  # fmt: skip
    photo = built / "photos" / "photo05.png"
    found = [
        run(capsys, "classify", folder, photo, "--by", by, "--json").object["top"]
        for folder in (out, plain)
        for by in ("runtime", "machine", "reference")
    ]
    assert all(f == found[0] for f in found)


def test_info_tells_what_runs_where(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "info", built / "small.onnx", "--json").object
    assert found["kind"] == "float" and found["opset"] == 17
    assert found["inputs"][0] == {
        "name": "image", "shape": [1, 3, 16, 16], "dtype": "float", "note": "",
    }  # fmt: skip
    assert found["targets"]["ax650n"]["nodes_npu"] == 7
    assert run(capsys, "info", built / "out" / "quantized.onnx", "--json").object["kind"] == (
        "quantized"
    )
    text = run(capsys, "info", built / "small.onnx", "--target", "a311d")
    assert "a311d: " in text.out


def test_what_an_import_pass_nearly_rewrote_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A softmax with an epsilon in its sum."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 4, 8] x) => (float[1, 4, 8] y) <float k = {0.001}, int64[1] last = {-1}> {
        e = Exp(x)  s = ReduceSum(e, last)  t = Add(s, k)  y = Div(e, t)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[3].name = "divide"
    onnx.save(model, tmp_path / "net.onnx")
    arguments = ["optimize", tmp_path / "net.onnx", "-o", tmp_path / "o.onnx"]
    (miss,) = run(capsys, *arguments, "--json").object["near_misses"]
    assert (miss["rule"], miss["node"]) == ("softmax", "divide")
    for command in (arguments, ["info", tmp_path / "net.onnx"]):
        outcome = run(capsys, *command)
        words = " ".join((outcome.out + outcome.err).split())
        assert "divide" in words and "0.001 is added to the sum" in words


def test_init_writes_a_configuration_that_builds(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "my.toml"
    arguments = ["init", built / "small.onnx", "-o", config, "--preprocess", "tf"]
    assert run(capsys, *arguments, "--calib", built / "photos").code == 0
    assert run(capsys, *arguments).code == 1
    outcome = run(capsys, "build", built / "small.onnx", "-c", config, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("verb", ["targets", "ops", "doctor", "fetch"])
def test_lists_are_objects(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, verb, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.object


def test_one_target_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "targets", "ax650n", "--json").object
    assert {n["source"] for n in found["numbers"]} <= {"published", "fitted", "assumed"}


def test_a_chip_of_the_users_own(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlib import resources

    text = (resources.files("tilewright.targets") / "ax650n.toml").read_text("utf-8")
    chip = tmp_path / "mine.toml"
    chip.write_text(text.replace('name = "ax650n"', 'name = "mine"').replace("800e6", "400e6"))
    out = tmp_path / "out"
    found = build(capsys, built / "small.onnx", built / "photos", out, "--target", chip)
    assert found["target"] == "mine"
    chip.unlink()
    simulated = run(capsys, "simulate", out, "--json")
    assert simulated.code == 0, simulated.err
    assert simulated.object["max_cycle"] == found["modes"]["NPU1"]["max_cycle"]


def test_reader_that_goes_away_is_no_error(built: Path) -> None:
    started = process("disasm", built / "out")
    assert started.stdout is not None
    started.stdout.read(10)
    started.stdout.close()
    assert started.wait(timeout=60) == 0
    assert started.stderr is not None and started.stderr.read() == ""


def test_no_colour_codes_outside_a_terminal(built: Path, tmp_path: Path) -> None:
    started = process("build", built / "small.onnx", "-o", tmp_path / "out", "--target", "ax650n",
                      "--calib", "random:4")  # fmt: skip
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0
    assert "\x1b" not in out + err
    assert "warning: calibration: only 4 calibration samples" in err


def test_numbers_are_never_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    stream = io.StringIO()
    monkeypatch.setattr(console, "out", lambda: Console(file=stream, width=20))
    console.table(("mode", "cycles", "fps"), [("NPU1", "46,186,000", "17,321")], numbers=(1, 2))
    assert stream.getvalue().splitlines()[1].split() == ["NPU1", "46,186,000", "17,321"]


@pytest.mark.parametrize("target", ["ax650n", "a311d", "tda4vm", "cpu"])
def test_numbers_without_bound_are_null_in_json(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    outcome = run(capsys, "targets", target, "--json")
    json.loads(outcome.out, parse_constant=refuse)
