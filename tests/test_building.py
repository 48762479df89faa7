"""Stages that are taken from the build before, such as calibration when the chip changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright.quantize import calibrate as calibrate_module
from tilewright.quantize.sessions import Session
from tilewright.report.content import Report

SAMPLES = 20
NOTHING: frozenset[str] = frozenset()


def build(model: Path, photos: Path, out: Path, target: str, **more: Any) -> Report:
    return tilewright.build(
        model, target=target, calibration=photos, output=out, preprocess="tf", **more
    ).report()


def reused(report: Report) -> set[str]:
    return {stage.name for stage in report.stages if stage.reused}


@pytest.fixture
def float_runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the samples that calibration runs through the float model."""
    runs: Counter[str] = Counter()

    class Counting(Session):
        def run(self, feeds: Any) -> Any:
            runs["samples"] += 1
            return super().run(feeds)

    monkeypatch.setattr(calibrate_module, "Session", Counting)
    return runs


def test_another_chip_calibrates_nothing_and_gets_the_bits_of_a_fresh_build(
    classifier: Path, photos: Path, tmp_path: Path, float_runs: Counter[str]
) -> None:
    out = tmp_path / "out"
    first = build(classifier, photos, out, "ax650n")
    assert reused(first) == NOTHING
    assert float_runs["samples"] == 2 * SAMPLES  # ranges, then histograms
    statistics = (out / "calibration.npz").read_bytes()
    for target in ("a311d", "tda4vm", "ax650n"):
        float_runs.clear()
        seen: Counter[str] = Counter()
        report = build(
            classifier,
            photos,
            out,
            target,
            progress=lambda stage, *_, seen=seen: seen.update([stage]),
        )
        assert float_runs["samples"] == 0
        assert reused(report) == {"import", "calibrate"}
        assert "calibrate" not in seen and "histograms" not in seen
        assert {"quantize", "correct biases"} <= set(seen)
        assert (out / "calibration.npz").read_bytes() == statistics
        fresh = build(classifier, photos, tmp_path / target, target)
        for name in ("quantized.onnx", "compiled.onnx"):
            assert (out / name).read_bytes() == (tmp_path / target / name).read_bytes(), name
        assert report.warnings == fresh.warnings
        assert {**report.calibration, "samples_per_second": 0} == {
            **fresh.calibration, "samples_per_second": 0,
        }  # fmt: skip


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "gone"])
def test_damaged_statistics_are_gathered_again(
    classifier: Path, photos: Path, tmp_path: Path, float_runs: Counter[str], damage: str
) -> None:
    out = tmp_path / "out"
    build(classifier, photos, out, "ax650n")
    path = out / "calibration.npz"
    good = path.read_bytes()
    half = len(good) // 2
    if damage == "gone":
        path.unlink()
    else:
        changed = good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :]
        path.write_bytes({"cut": good[:half], "changed": changed, "empty": b""}[damage])
    float_runs.clear()
    report = build(classifier, photos, out, "a311d")
    assert reused(report) == {"import"}
    assert float_runs["samples"] == 2 * SAMPLES
    assert path.read_bytes() == good
    build(classifier, photos, tmp_path / "fresh", "a311d")
    fresh = (tmp_path / "fresh" / "quantized.onnx").read_bytes()
    assert (out / "quantized.onnx").read_bytes() == fresh


def test_statistics_alone_do_not_make_quantization_run_again(
    classifier: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    build(classifier, photos, out, "ax650n")
    (out / "calibration.npz").unlink()
    report = build(classifier, photos, out, "ax650n")
    assert reused(report) == {"import", "quantize", "compile", "measure"}


@pytest.mark.parametrize("stage", ["calibrate", "histograms", "correct biases", "compile"])
def test_an_interrupted_build_leaves_the_one_before(
    classifier: Path, photos: Path, tmp_path: Path, stage: str
) -> None:
    out = tmp_path / "out"
    build(classifier, photos, out, "ax650n")
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def interrupt(what: str, done: int, _total: int) -> None:
        if what == stage and (done > 1 or what == "compile"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(classifier, photos, out, "a311d", samples=10, progress=interrupt)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert reused(build(classifier, photos, out, "a311d")) == {"import", "calibrate"}


def test_a_quantized_model_has_nothing_to_calibrate(
    classifier: Path, photos: Path, tmp_path: Path
) -> None:
    build(classifier, photos, tmp_path / "one", "ax650n")
    report = build(tmp_path / "one" / "quantized.onnx", photos, tmp_path / "two", "ax650n")
    assert [s.name for s in report.stages] == ["import", "quantize", "compile", "measure"]
    assert not (tmp_path / "two" / "calibration.npz").exists()
    again = build(tmp_path / "one" / "quantized.onnx", photos, tmp_path / "two", "ax650n")
    assert all(stage.reused for stage in again.stages)
