"""Models that are no valid ONNX: one sentence that blames the file, nothing else printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from importer_nets import make_model, make_proto, node, normal
from onnx import helper

from tilewright.errors import ModelError
from tilewright.importer import import_model


def proto() -> onnx.ModelProto:
    return make_proto(
        [node("Conv", "x w", "c"), node("Relu", "c", "y")],
        {"x": [1, 3, 8, 8]},
        ["y"],
        {"w": normal(4, 3, 3, 3)},
    )


def _reads_nothing(graph: onnx.GraphProto) -> None:
    graph.node[1].input[0] = "nowhere"


def _circle(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "y"


def _input_twice(graph: onnx.GraphProto) -> None:
    graph.input.append(graph.input[0])


def _output_without_name(graph: onnx.GraphProto) -> None:
    graph.output[0].name = graph.node[1].output[0] = ""


def _output_of_no_node(graph: onnx.GraphProto) -> None:
    graph.output[0].name = "nowhere"


def _operand_too_many(graph: onnx.GraphProto) -> None:
    graph.node[1].input.append("x")


def _result_too_many(graph: onnx.GraphProto) -> None:
    graph.node[1].output.append("z")


def _attribute_of_another_type(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("group", "one"))


def _text_for_numbers(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


@pytest.mark.parametrize(
    "damage",
    [
        _reads_nothing,
        _circle,
        _input_twice,
        _output_without_name,
        _output_of_no_node,
        _operand_too_many,
        _result_too_many,
        _attribute_of_another_type,
        _text_for_numbers,
    ],
)
def test_the_file_is_blamed(
    damage: Callable[[onnx.GraphProto], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = proto()
    damage(model.graph)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.code == "TW-1103"
    assert "net.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not caplog.records


def test_a_kernel_larger_than_its_input() -> None:
    model = make_model(
        [node("Conv", "x w", "y", dilations=[9, 9])],
        {"x": [1, 3, 8, 8]},
        ["y"],
        {"w": normal(4, 3, 3, 3)},
    )
    with pytest.raises(ModelError) as caught:
        import_model(model)
    assert caught.value.code == "TW-1110"
    assert "n_y" in str(caught.value)


def test_external_data_at_no_number(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(proto(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    entries = {e.key: e for e in model.graph.initializer[0].external_data}
    entries["length"].value = "many"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.code == "TW-1103"


def test_a_compiled_model_is_told_apart(tmp_path: Path) -> None:
    model = make_proto(
        [helper.make_node("NpuGraph", ["x"], ["y"], domain="ai.tilewright")],
        {"x": [1, 4]},
        ["y"],
        domains={"ai.tilewright": 1},
    )
    path = tmp_path / "compiled.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.code == "TW-1123"
