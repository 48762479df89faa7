"""The Python API: what `import tilewright` offers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tilewright
from tilewright.errors import ConfigError, DataError, TilewrightError


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tilewright.Build:
    """One build through the API, with a node that stays on the CPU."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from small_models import save_photos, small_classifier

    folder = tmp_path_factory.mktemp("api")
    model = small_classifier()
    model.graph.node.append(helper.make_node("CumSum", ["logits", "axis"], ["sums"], "sums"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "axis"))
    model.graph.output.append(helper.make_tensor_value_info("sums", TensorProto.FLOAT, [1, 5]))
    onnx.save(model, folder / "small.onnx")
    seen: list[str] = []
    build = tilewright.build(
        folder / "small.onnx",
        target="ax650n",
        npu_modes=["NPU1", "NPU3"],
        calibration=save_photos(folder / "photos"),
        output=folder / "out",
        mean=127.5,
        std=[127.5, 127.5, 127.5],
        quantization={"bias_correction": False},
        progress=lambda stage, done, total: seen.append(stage),
    )
    assert {"import", "quantize", "compile", "measure"} <= set(seen)
    return build


def photo(build: tilewright.Build) -> Path:
    return build.folder.parent / "photos" / "photo07.png"


def test_report_names_the_cpu_node(built: tilewright.Build) -> None:
    report = built.report()
    assert [(n.name, n.op) for n in report.nodes_cpu] == [("sums", "CumSum")]
    assert "CumSum" in report.nodes_cpu[0].reason
    assert set(report.sqnr_db) == {"logits", "sums"}


def test_executors_agree_with_cpu_nodes_between(built: tilewright.Build) -> None:
    model = built.model()
    values = model.sample(photo(built)).values
    runs = {by: model.execution(by).run(values) for by in ("reference", "machine", "runtime")}
    given = model.execution("machine", mode="NPU3").run(values, runs["reference"])
    for other in (runs["machine"], runs["runtime"], given):
        for name, value in runs["reference"].items():
            assert other[name].tobytes() == value.tobytes(), name


def test_build_simulates_and_runs(built: tilewright.Build) -> None:
    simulated = built.simulate(photo(built), "NPU3")
    ran = built.run(photo(built), repeat=2, warmup=1, threads=1)
    np.testing.assert_array_equal(simulated.outputs["logits"], ran.outputs["logits"])
    assert simulated.timing.max_cycle == built.report().modes["NPU3"].max_cycle
    assert len(ran.seconds) == 2
    fed = {"image": np.zeros((1, 3, 16, 16), np.float32)}
    assert built.run(fed).outputs["sums"].shape == (1, 5)


def test_build_evaluates(built: tilewright.Build) -> None:
    rows = built.evaluate(built.folder.parent / "photos", metric="sqnr")
    assert [r["model"] for r in rows] == ["optimized.onnx", "quantized.onnx", "compiled.onnx"]
    assert rows[2]["sqnr_db"] > 15


def test_session_has_the_shape_of_onnxruntimes(built: tilewright.Build) -> None:
    ours = tilewright.InferenceSession(built.compiled, threads=1)
    theirs = onnxruntime.InferenceSession(
        str(built.folder / "optimized.onnx"), providers=["CPUExecutionProvider"]
    )
    for mine, other in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(p.name, list(p.shape), p.type) for p in mine] == [
            (p.name, p.shape, p.type) for p in other
        ]
    feeds = {"image": built.model().sample(photo(built)).values["image"]}
    both = ours.run(None, feeds)
    assert [a.shape for a in both] == [(1, 5), (1, 5)]
    np.testing.assert_array_equal(ours.run(["sums"], feeds)[0], both[1])
    exact = theirs.run(None, feeds)
    assert np.abs(both[0] - exact[0]).max() < 0.1 * np.abs(exact[0]).max()


@pytest.mark.parametrize("executor", ["machine", "reference"])
def test_session_may_run_on_any_executor(built: tilewright.Build, executor: str) -> None:
    feeds = {"image": built.model().sample(photo(built)).values["image"]}
    expected = tilewright.InferenceSession(built.compiled).run(["logits"], feeds)[0]
    found = tilewright.InferenceSession(built.compiled, executor=executor).run(["logits"], feeds)[0]
    assert found.tobytes() == expected.tobytes()


def test_errors_are_tilewrights_own(built: tilewright.Build, tmp_path: Path) -> None:
    session = tilewright.InferenceSession(built.compiled)
    with pytest.raises(DataError, match="did you mean 'logits'"):
        session.run(["logit"], {})
    with pytest.raises(DataError, match="no value for input 'image'"):
        session.run(None, {})
    with pytest.raises(ConfigError, match="unknown setting 'obsrver'; did you mean 'observer'"):
        tilewright.build("x.onnx", target="cpu", obsrver="kl")
    with pytest.raises(tilewright.TilewrightError):
        tilewright.InferenceSession(tmp_path / "none.onnx")
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        tilewright.bild  # noqa: B018


def test_a_part_between_named_tensors_is_built(tmp_path: Path) -> None:
    import onnx

    from small_models import small_classifier

    onnx.save(small_classifier(), tmp_path / "small.onnx")
    build = tilewright.build(
        tmp_path / "small.onnx",
        target="cpu",
        calibration="random:16",
        output=tmp_path / "out",
        start=["r0"],
        end=["p"],
    )
    session = tilewright.InferenceSession(build.compiled)
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("r0", (1, 8, 16, 16))]
    assert [o.name for o in session.get_outputs()] == ["p"]

    with pytest.raises(TilewrightError, match="no tensor 'q' to cut at"):
        tilewright.build(
            tmp_path / "small.onnx",
            target="cpu",
            calibration="random:16",
            output=tmp_path / "out",
            end=["q"],
        )
