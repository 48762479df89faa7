"""compiled.onnx: bytes in, the same bytes out, and an ONNX file all the same."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.container import (
    DOMAIN,
    ISLAND_OP,
    Artifact,
    Container,
    read_container,
    write_container,
)
from tilewright.errors import ArtifactError


def host() -> onnx.ModelProto:
    """x -> island -> Erf on the CPU -> island -> y."""
    nodes = [
        helper.make_node(ISLAND_OP, ["x"], ["a"], "npu0", domain=DOMAIN),
        helper.make_node("Erf", ["a"], ["b"], "erf"),
        helper.make_node(ISLAND_OP, ["b"], ["y"], "npu1", domain=DOMAIN),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "host",
        [value("x", TensorProto.FLOAT, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
        value_info=[value("b", TensorProto.FLOAT, [1, 4])],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def container() -> Container:
    artifacts = (
        Artifact("npu0", b"graph zero", {"NPU1": b"p1", "NPU3": b"p3"}),
        Artifact("npu1", bytes(range(256)), {"NPU1": b"q1", "NPU3": b"q3"}),
    )
    return Container(host(), artifacts, {"target": "ax650n", "version": "1"})


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "compiled.onnx"
    write_container(container(), path)
    back = read_container(path)
    assert back.artifacts == container().artifacts
    assert back.metadata == {"target": "ax650n", "version": "1"}
    assert back.target == "ax650n" and back.modes == ("NPU1", "NPU3")
    assert not any(n.attribute for n in back.host.graph.node if n.domain == DOMAIN)


def test_the_checker_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "compiled.onnx"
    write_container(container(), path)
    onnx.checker.check_model(str(path), full_check=True)
    assert DOMAIN in {o.domain for o in onnx.load(path).opset_import}


def test_the_same_container_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    write_container(container(), first)
    write_container(read_container(first), second)
    assert first.read_bytes() == second.read_bytes()


def test_writing_keeps_metadata_of_others(tmp_path: Path) -> None:
    model = host()
    model.metadata_props.add(key="Image.BitmapPixelFormat", value="Rgb8")
    path = tmp_path / "compiled.onnx"
    write_container(Container(model, container().artifacts, {"target": "cpu"}), path)
    props = {p.key: p.value for p in onnx.load(path).metadata_props}
    assert props == {"Image.BitmapPixelFormat": "Rgb8", "pkg.tilewright.target": "cpu"}


def test_plain_onnx_is_refused(tmp_path: Path, classifier: Path) -> None:
    with pytest.raises(ArtifactError, match="not a compiled model") as caught:
        read_container(classifier)
    assert caught.value.code == "TW-1303"


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compiled.onnx"
    write_container(container(), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ArtifactError):
        read_container(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_container(tmp_path / "none.onnx")


def test_text_that_is_no_utf8_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "compiled.onnx"
    write_container(container(), path)
    content = path.read_bytes()
    assert b"pkg.tilewright.target" in content
    path.write_bytes(content.replace(b"pkg.tilewright.target", b"pkg\xfftilewright.target"))
    with pytest.raises(ArtifactError) as caught:
        read_container(path)
    assert caught.value.code == "TW-1302"
