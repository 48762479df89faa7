"""Files appear whole, with the same bytes each time, and with external data where they must."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from importer_nets import make_model, node, normal, random_feeds

from tilewright.errors import EnvironmentFault, ModelError
from tilewright.importer import compare_outputs, cut, import_model, load, run_model, save
from tilewright.importer.compare import OutputError, output_error


def canonical():
    nodes = [
        node("Conv", "x w", "c"),
        node("Relu", "c", "r"),
        node("Conv", "r u", "d"),
        node("Add", "d r", "s"),
        node("Sigmoid", "s", "y"),
    ]
    constants = {"w": normal(4, 3, 3, 3), "u": normal(4, 4, 1, 1)}
    return import_model(make_model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)).model


def test_saves_the_same_bytes_and_loads_again(tmp_path):
    model = canonical()
    save(model, tmp_path / "a.onnx")
    save(model, tmp_path / "b.onnx")
    content = (tmp_path / "a.onnx").read_bytes()
    assert content == (tmp_path / "b.onnx").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx"]
    save(import_model(tmp_path / "a.onnx").model, tmp_path / "c.onnx")
    assert (tmp_path / "c.onnx").read_bytes() == content, "a canonical model imports to itself"


def test_large_models_get_a_data_file(tmp_path):
    model = canonical()
    path = tmp_path / "big.onnx"
    save(model, path, largest_message_bytes=0)
    assert sorted(os.listdir(tmp_path)) == ["big.onnx", "big.onnx.data"]
    feeds = random_feeds(model)
    again = load(path)
    assert compare_outputs(path, model, feeds) == {"y": OutputError(0.0, 0.0)}
    assert compare_outputs(again, model, feeds) == {"y": OutputError(0.0, 0.0)}
    onnx.checker.check_model(str(path))
    save(again, tmp_path / "small.onnx")
    alone = onnx.load(tmp_path / "small.onnx", load_external_data=False)
    assert all(t.data_location == onnx.TensorProto.DEFAULT for t in alone.graph.initializer)


def test_nothing_is_left_when_writing_fails(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        save(canonical(), tmp_path / "a.onnx")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_an_error_of_ours(tmp_path):
    with pytest.raises(EnvironmentFault):
        save(canonical(), tmp_path / "nowhere" / "a.onnx")


def test_cut_between_tensors_gives_the_same_numbers():
    model = canonical()
    feeds = random_feeds(model)
    whole = run_model(cut(model, [], ["r", "s"]), feeds)
    assert list(whole) == ["r", "s"]
    part = cut(model, ["r"], ["y"])
    assert [v.name for v in part.graph.inputs] == ["r"]
    assert list(part.graph.inputs[0].shape) == [1, 4, 6, 6]
    np.testing.assert_array_equal(
        run_model(part, {"r": whole["r"]})["y"], run_model(model, feeds)["y"]
    )
    assert len(model.graph) == 5, "the model itself is not cut"


def test_cut_refuses_unknown_names_and_inputs_that_are_left():
    model = canonical()
    with pytest.raises(ModelError, match="did you mean"):
        cut(model, ["x"], ["yy"])
    with pytest.raises(ModelError, match="depends on the model's input 'x'"):
        cut(model, ["d"], ["s"])


def test_output_error():
    first = np.asarray([1.0, -4.0, np.nan, np.inf])
    assert output_error(first, first) == OutputError(0.0, 0.0)
    assert output_error(first[1:3], np.array([-4.0, 7.0])) == OutputError(0.0, 0.0)
    assert np.isnan(output_error(first[2:3], np.zeros(1)).max_absolute)
    assert output_error(np.zeros(1), first[2:3]).max_absolute == float("inf")
    assert output_error(first[:2], np.asarray([1.0, -3.0])) == OutputError(0.25, 1.0)
    assert output_error(first[:2], first[:1]).max_relative == float("inf")
    assert output_error(first, np.zeros(4)).max_absolute == float("inf")
    assert output_error(np.asarray([True]), np.asarray([False])).max_absolute == 1.0


def test_a_model_that_onnxruntime_refuses_is_an_error_of_ours():
    with pytest.raises(ModelError, match="onnxruntime cannot run"):
        run_model(canonical(), {"x": np.zeros((1, 3, 4, 4, 4), np.float32)})
