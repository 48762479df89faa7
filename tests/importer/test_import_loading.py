"""Every unusable file gets one sentence with a stable code."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import onnx
import pytest
from importer_nets import make_proto, node, normal
from onnx import helper

from tilewright.errors import ModelError
from tilewright.importer import import_model, load
from tilewright.importer.loading import read


def conv_proto(weight: np.ndarray | None = None, **kwargs) -> onnx.ModelProto:
    weight = normal(4, 3, 3, 3) if weight is None else weight
    return make_proto(
        [node("Conv", "x w", "y")], {"x": [1, 3, 8, 8]}, ["y"], {"w": weight}, **kwargs
    )


def refused(path, code: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_loads_a_model_and_hashes_its_bytes(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(conv_proto(), path)
    model, digest = read(path)
    assert [n.op_type for n in model.graph] == ["Conv"]
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_missing_file_names_the_nearest(tmp_path):
    onnx.save(conv_proto(), tmp_path / "resnet.onnx")
    assert "did you mean 'resnet.onnx'?" in refused(tmp_path / "resnt.onnx", "TW-1101")
    assert "check the path" in refused(tmp_path / "nowhere" / "net.onnx", "TW-1101")


def test_directory(tmp_path):
    assert "is a directory" in refused(tmp_path, "TW-1102")


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"not a model at all", b"PK\x03\x04" * 9])
def test_not_an_onnx(tmp_path, content):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    refused(path, "TW-1103")


def test_truncation_anywhere_is_an_error_of_ours(tmp_path):
    content = conv_proto().SerializeToString()
    path = tmp_path / "net.onnx"
    for length in range(1, len(content) - 1, 7):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError):
            load(path)


def test_external_data_missing_or_short(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(conv_proto(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = read(path)[1]
    data = tmp_path / "w.bin"
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    assert read(path)[1] != before
    data.write_bytes(content[:-4])
    assert "w.bin" in refused(path, "TW-1108")
    data.unlink()
    assert "'w'" in refused(path, "TW-1108")


def test_external_data_may_not_leave_its_directory(tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save(conv_proto(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    os.rename(folder / "w.bin", tmp_path / "w.bin")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../w.bin"
    path.write_bytes(proto.SerializeToString())
    refused(path, "TW-1103")


@pytest.mark.parametrize("opset", [1, 8, 9999])
def test_opset_out_of_range_states_the_range(tmp_path, opset):
    path = tmp_path / "net.onnx"
    proto = conv_proto()
    proto.opset_import[0].version = opset
    path.write_bytes(proto.SerializeToString())
    assert f"opsets 9 to {onnx.defs.onnx_opset_version()}" in refused(path, "TW-1104")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_weight_states_name_index_and_count(tmp_path, bad):
    weight = normal(4, 3, 3, 3)
    weight[2, 1, 0, 2] = weight[3, 0, 0, 0] = bad
    path = tmp_path / "net.onnx"
    onnx.save(conv_proto(weight), path)
    message = refused(path, "TW-1107")
    assert "'w'" in message and "[2, 1, 0, 2]" in message and "2 of 108" in message


def test_infinite_mask_is_no_weight(tmp_path):
    mask = np.where(np.tri(4) > 0, 0, -np.inf).astype(np.float32)
    path = tmp_path / "net.onnx"
    onnx.save(make_proto([node("Add", "x m", "y")], {"x": [4, 4]}, ["y"], {"m": mask}), path)
    load(path)


def batch_norm(outputs: str, **attributes) -> list[onnx.NodeProto]:
    return [node("BatchNormalization", "x s s s s", outputs, **attributes)]


def dropout_in_training() -> list[onnx.NodeProto]:
    return [
        helper.make_node(
            "Constant", [], ["t"], value=onnx.numpy_helper.from_array(np.asarray(True))
        ),
        node("Dropout", "x - t", "y"),
    ]


@pytest.mark.parametrize(
    ("nodes", "opset", "outputs"),
    [
        (batch_norm("y m v", training_mode=1), 17, ["y"]),
        (batch_norm("y m v a b"), 9, ["y", "m"]),
        (dropout_in_training(), 13, ["y"]),
    ],
)
def test_training_mode(tmp_path, nodes, opset, outputs):
    path = tmp_path / "net.onnx"
    scale = np.ones(3, np.float32)
    onnx.save(make_proto(nodes, {"x": [1, 3, 4, 4]}, outputs, {"s": scale}, opset=opset), path)
    assert "training mode" in refused(path, "TW-1109")


def test_unknown_domain_and_operator(tmp_path):
    path = tmp_path / "net.onnx"
    foreign = helper.make_node("Fancy", ["x"], ["y"], domain="vendor.ops", name="odd")
    onnx.save(make_proto([foreign], {"x": [2]}, ["y"]), path)
    assert "vendor.ops" in refused(path, "TW-1112")
    onnx.save(make_proto([node("Convv", "x x", "y")], {"x": [2]}, ["y"]), path)
    assert "did you mean 'Conv'?" in refused(path, "TW-1112")
    onnx.save(make_proto([node("Gelu", "x", "y")], {"x": [2]}, ["y"], opset=13), path)
    assert "opset 13" in refused(path, "TW-1112")


def test_graph_without_nodes_or_outputs(tmp_path):
    path = tmp_path / "net.onnx"
    proto = conv_proto()
    del proto.graph.output[:]
    path.write_bytes(proto.SerializeToString())
    assert "no outputs" in refused(path, "TW-1103")


def test_large_external_data_is_mapped_not_parsed(tmp_path):
    """A sparse data file of 2 GiB and more, of which only the last weight holds anything."""
    rows, columns = (2 << 10) + 1, 1 << 18
    proto = make_proto(
        [node("Gather", "w i", "g"), node("Mul", "g x", "y")],
        {"x": [1, columns]},
        ["y"],
        {"i": np.asarray([rows - 1], np.int64)},
    )
    tensor = proto.graph.initializer.add(
        name="w", data_type=onnx.TensorProto.FLOAT, dims=[rows, columns]
    )
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {
        "location": "w.bin",
        "offset": "0",
        "length": str(rows * columns * 4),
    }.items():
        tensor.external_data.add(key=key, value=value)
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(rows * columns * 4)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(2.5).tobytes())
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    result = import_model(path)
    weights = [v for v in result.model.graph.initializers.values() if v.shape == (1, columns)]
    assert weights[0].const_value.numpy()[0, -1] == 2.5
