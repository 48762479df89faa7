"""A small net with every normalisation through a whole build, on the NPU from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright


def net(rng: np.random.Generator) -> onnx.ModelProto:
    """Conv, InstanceNorm, Conv, GroupNorm, LayerNorm, RMSNorm, L2, Gemm."""

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(rng.normal(0, scale, shape).astype(np.float32), name)

    def affine(name: str, centre: float, count: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.normal(centre, 0.2, count).astype(np.float32), name)

    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w0"], ["c0"], "conv0", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("InstanceNormalization", ["c0", "g0", "b0"], ["i"], "instance"),
        node("Relu", ["i"], ["r"], "relu"),
        node("Conv", ["r", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        node("GroupNormalization", ["c1", "g1", "b1"], ["n"], "group", num_groups=4),
        node("Transpose", ["n"], ["t"], "last", perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["t", "g2", "b2"], ["l"], "layer"),
        node("ReduceMean", ["l", "places"], ["m"], "mean", keepdims=0),
        node("RMSNormalization", ["m", "g3"], ["s"], "rms"),
        node("LpNormalization", ["s"], ["e"], "embedding", axis=-1, p=2),
        node("Gemm", ["e", "w2"], ["logits"], "dense", transB=1),
    ]
    constants = [
        weight("w0", 16, 3, 3, 3),
        affine("g0", 1, 16),
        affine("b0", 0, 16),
        weight("w1", 24, 16, 3, 3),
        affine("g1", 1, 24),
        affine("b1", 0, 24),
        affine("g2", 1, 24),
        affine("b2", 0, 24),
        affine("g3", 1, 24),
        weight("w2", 10, 24),
        numpy_helper.from_array(np.array([1, 2]), "places"),
    ]
    graph = helper.make_graph(
        nodes,
        "norms",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.mark.parametrize("activations", ["u8", "s16"])
def test_a_net_of_normalisations(activations: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    onnx.save(net(rng), tmp_path / "norms.onnx")
    np.save(tmp_path / "samples.npy", rng.normal(0, 1, (24, 3, 16, 16)).astype(np.float32))
    build = tilewright.build(
        tmp_path / "norms.onnx",
        target="ax650n",
        npu_modes=["NPU1", "NPU3"],
        calibration=tmp_path / "samples.npy",
        output=tmp_path / "out",
        quantization={"activations": activations},
    )
    report = build.report()
    assert not report.nodes_cpu
    assert report.sqnr_db["logits"] > {"u8": 30, "s16": 50}[activations]
    model = build.model()
    values = {"image": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)}
    reference = model.execution("reference").run(values)["logits"]
    for execution in (
        model.execution("machine"),
        model.execution("machine", mode="NPU3"),
        model.execution("runtime"),
    ):
        assert execution.run(values)["logits"].tobytes() == reference.tobytes()
