"""A small model and pictures for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def small_classifier(seed: int = 0) -> onnx.ModelProto:
    """A float net of two convolutions, a pool and a Gemm: image [1, 3, 16, 16] -> logits [1, 5]."""
    rng = np.random.default_rng(seed)

    def constant(name: str, *shape: int, scale: float = 1.0) -> onnx.TensorProto:
        values = rng.normal(0, scale, shape).astype(np.float32)
        return numpy_helper.from_array(values, name)

    nodes = [
        helper.make_node("Conv", ["image", "w0", "b0"], ["c0"], "conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
        helper.make_node(
            "Conv", ["r0", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]
        ),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["logits"], "dense"),
    ]
    constants = [
        constant("w0", 8, 3, 3, 3, scale=0.2),
        constant("b0", 8, scale=0.1),
        constant("w1", 8, 8, 3, 3, scale=0.1),
        constant("b1", 8, scale=0.1),
        constant("w2", 8, 5, scale=0.5),
        constant("b2", 5, scale=0.1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 5])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save_photos(folder: Path) -> Path:
    """Twenty smooth, different pictures in a new folder."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(1)
    for index in range(20):
        coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((48, 40), Image.Resampling.BICUBIC)
        picture.save(folder / f"photo{index:02}.png")
    return folder
