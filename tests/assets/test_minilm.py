"""The rebuilt sentence encoder: scaled-down weights against the formulas in NumPy."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime as ort
import pytest

from tilewright.assets.minilm import EPSILON, HEAD_SIZE, MASKED, build
from tilewright.errors import DataError

WIDTH, WIDE, WORDS, PLACES, LAYERS, LENGTH = 64, 96, 40, 12, 2, 8
Weights = dict[str, np.ndarray]


def weights() -> Weights:
    """Random weights of the network's structure."""
    rng = np.random.default_rng(4)
    found: Weights = {"embeddings.position_ids": np.arange(PLACES)[None]}

    def draw(name: str, *shape: int, centre: float = 0.0) -> None:
        found[name] = rng.normal(centre, 0.3, shape).astype(np.float32)

    def linear(name: str, out: int, inner: int) -> None:
        draw(f"{name}.weight", out, inner)
        draw(f"{name}.bias", out)

    def norm(name: str) -> None:
        draw(f"{name}.weight", WIDTH, centre=1.0)
        draw(f"{name}.bias", WIDTH)

    for table, rows in (("word", WORDS), ("position", PLACES), ("token_type", 2)):
        draw(f"embeddings.{table}_embeddings.weight", rows, WIDTH)
    norm("embeddings.LayerNorm")
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", WIDE, WIDTH)
        linear(f"{layer}.output.dense", WIDTH, WIDE)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", WIDTH, WIDTH)
    return found


def sentence(w: Weights, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The same network in float64, one head and one token at a time where that is plain."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].astype(np.float64).T + w[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    words, places, types = (
        w[f"embeddings.{table}_embeddings.weight"].astype(np.float64)
        for table in ("word", "position", "token_type")
    )
    x = norm(words[ids] + places[: len(ids)] + types[0], "embeddings.LayerNorm")
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        q, k, v = (linear(x, f"{layer}.attention.self.{p}") for p in ("query", "key", "value"))
        joined = np.zeros_like(x)
        for first in range(0, WIDTH, HEAD_SIZE):
            head = slice(first, first + HEAD_SIZE)
            scores = q[:, head] @ k[:, head].T / math.sqrt(HEAD_SIZE)
            scores = np.exp(scores) * mask
            joined[:, head] = scores / scores.sum(1, keepdims=True) @ v[:, head]
        x = norm(
            x + linear(joined, f"{layer}.attention.output.dense"),
            f"{layer}.attention.output.LayerNorm",
        )
        y = linear(x, f"{layer}.intermediate.dense")
        y = y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2
        x = norm(x + linear(y, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = (x * mask[:, None]).sum(0) / mask.sum()
    return mean / np.linalg.norm(mean)


def test_the_network_computes_the_formulas() -> None:
    w = weights()
    session = ort.InferenceSession(
        build(w, LENGTH).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    for used in (3, LENGTH):
        ids = rng.integers(0, WORDS, LENGTH)
        mask = (np.arange(LENGTH) < used).astype(np.int64)
        (found,) = session.run(None, {"input_ids": ids[None], "attention_mask": mask[None]})
        assert found.shape == (1, WIDTH)
        np.testing.assert_allclose(found[0], sentence(w, ids, mask), atol=2e-5)
    assert math.exp(MASKED + 100) == 0, "padding has no weight at all"


def test_other_weights_are_refused() -> None:
    w = weights()
    with pytest.raises(DataError, match="no positions for 13 tokens"):
        build(w, PLACES + 1)
    with pytest.raises(DataError, match="1 weights are unused, such as 'extra'"):
        build(w | {"extra": w["pooler.dense.bias"]}, LENGTH)
    del w["encoder.layer.1.output.dense.bias"]
    with pytest.raises(DataError, match=r"'encoder\.layer\.1\.output\.dense\.bias' is missing"):
        build(w, LENGTH)
