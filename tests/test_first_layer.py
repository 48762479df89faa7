from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.first_layer import first_layer_warning

RNG = np.random.default_rng(5)
WEIGHT = RNG.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)
TRAINED = [RNG.normal(0, 1, (1, 3, 20, 20)).astype(np.float32) for _ in range(32)]


def outputs() -> np.ndarray:
    """The convolution on the training data, [8, positions]."""
    windows = [np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2)) for x in TRAINED]
    return np.concatenate(
        [np.einsum("cyxij,ocij->oyx", w, WEIGHT).reshape(8, -1) for w in windows], axis=1
    )


def network(folder: Path, *, normalised: bool = True) -> Path:
    seen = outputs()
    named = {
        "w": WEIGHT,
        "gamma": np.ones(8, np.float32),
        "beta": np.zeros(8, np.float32),
        "mean": seen.mean(axis=1).astype(np.float32),
        "variance": seen.var(axis=1).astype(np.float32),
    }
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"])]
    if normalised:
        names = ["c", "gamma", "beta", "mean", "variance"]
        nodes.append(helper.make_node("BatchNormalization", names, ["n"]))
    nodes.append(helper.make_node("Relu", ["n" if normalised else "c"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 20, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8, 18, 18])],
        [numpy_helper.from_array(v, k) for k, v in named.items()],
    )
    path = folder / "bn.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_data_like_the_trainings_is_quiet(tmp_path: Path) -> None:
    assert first_layer_warning(network(tmp_path), ({"x": x} for x in TRAINED)) is None


def test_pixels_that_were_never_normalised_are_noticed(tmp_path: Path) -> None:
    warning = first_layer_warning(network(tmp_path), ({"x": 60 * x + 120} for x in TRAINED))
    assert warning is not None
    assert warning.code == "input-statistics"


def test_a_model_without_statistics_says_nothing(tmp_path: Path) -> None:
    path = network(tmp_path, normalised=False)
    assert first_layer_warning(path, ({"x": 60 * x + 120} for x in TRAINED)) is None
