"""The rebuilt network: a scaled-down set of weights gives a valid model, folded or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tilewright.assets.efficientnet import STAGES, block_strides, build, same_pads
from tilewright.errors import DataError

CHANNELS = (4, 4, 6, 6, 8, 8, 8)
KERNELS = (3, 3, 5, 3, 5, 5, 3)


def weights() -> dict[str, np.ndarray]:
    """Random weights of lite0's structure with few channels."""
    rng = np.random.default_rng(3)
    state: dict[str, np.ndarray] = {}

    def norm(name: str, count: int) -> None:
        state[f"{name}.weight"] = rng.uniform(0.5, 1.5, count)
        state[f"{name}.bias"] = rng.normal(size=count)
        state[f"{name}.running_mean"] = rng.normal(size=count)
        state[f"{name}.running_var"] = rng.uniform(0.5, 2, count)
        state[f"{name}.num_batches_tracked"] = np.array(1)

    def conv(name: str, norm_name: str, out: int, inner: int, kernel: int) -> None:
        state[f"{name}.weight"] = rng.normal(0, 0.3, (out, inner, kernel, kernel))
        norm(norm_name, out)

    conv("_conv_stem", "_bn0", 4, 3, 3)
    channels, index = 4, 0
    for (count, _), out, kernel in zip(STAGES, CHANNELS, KERNELS, strict=True):
        for _ in range(count):
            name, wide = f"_blocks.{index}", channels if index == 0 else 2 * channels
            if index:
                conv(f"{name}._expand_conv", f"{name}._bn0", wide, channels, 1)
            conv(f"{name}._depthwise_conv", f"{name}._bn1", wide, 1, kernel)
            conv(f"{name}._project_conv", f"{name}._bn2", out, wide, 1)
            channels, index = out, index + 1
    conv("_conv_head", "_bn1", 10, channels, 1)
    state["_fc.weight"] = rng.normal(size=(1000, 10))
    state["_fc.bias"] = rng.normal(size=1000)
    return {name: array.astype(np.float32) for name, array in state.items()}


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": x})[0])


def test_folded_and_unfolded_agree() -> None:
    state = weights()
    x = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    folded, kept = build(state), build(state, fold_batchnorm=False)
    ops = [n.op_type for n in kept.graph.node]
    assert ops.count("BatchNormalization") == ops.count("Conv") == 49
    assert "BatchNormalization" not in [n.op_type for n in folded.graph.node]
    a, b = run(folded, x), run(kept, x)
    assert a.shape == (1, 1000)
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max())


def test_wrong_variants_are_refused(tmp_path: Path) -> None:
    state = weights()
    with pytest.raises(DataError, match="is missing"):
        build(state, "lite1")
    with pytest.raises(DataError, match="1 weights are unused, such as 'extra'"):
        build({**state, "extra": state["_fc.bias"]})


def test_strides_and_pads_of_the_published_networks() -> None:
    assert len(block_strides(1.0)) == 16 and len(block_strides(1.1)) == 21
    assert same_pads(224, 3, 2) == (0, 1) and same_pads(56, 5, 1) == (2, 2)
