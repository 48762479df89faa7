"""all-MiniLM-L6-v2, a sentence encoder, as ONNX of static shape, rebuilt from its weights.

BERT's encoder (Devlin et al. 2018, arXiv:1810.04805): each layer is multi-head attention and a
two-layer perceptron with the exact GELU, both with a residual sum that is normalised after it.
The vectors of the tokens that count are summed and brought to length 1: their mean has the same
direction (Reimers and Gurevych 2019, arXiv:1908.10084).

Inputs `input_ids`, `attention_mask`: int64 [1, 128]; the mask is 1 where a token counts, else 0.
Output `sentence`: float32 [1, 384] of length 1.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.assets.checkpoint import Weights
from tilewright.assets.construction import Construction, save_model
from tilewright.assets.safetensors import read_safetensors
from tilewright.errors import DataError

if TYPE_CHECKING:
    import onnx

LENGTH = 128
HEAD_SIZE = 32
OPSET = 17
EPSILON = 1e-12
MASKED = -10000.0
"""Added to the scores of padding, as in BERT's own code."""

POSITIONS = "embeddings.position_embeddings.weight"
WORDS = "embeddings.word_embeddings.weight"
UNUSED = ("position_ids", "pooler.dense.weight", "pooler.dense.bias")
"""Counters, and a layer that belongs to another task."""


def convert(weights: str | Path, target: str | Path, _variant: str = "") -> None:
    """Read `.safetensors` weights and write the ONNX file under its final name when complete."""
    save_model(build(read_safetensors(weights)), Path(target))


def build(weights: Weights, length: int = LENGTH) -> onnx.ModelProto:
    """The network for sentences of `length` tokens.

    Raises:
        DataError: weights of another network.
    """
    from onnx import TensorProto, helper

    encoder = _Encoder(weights, length)
    x = encoder.embedding("input_ids")
    mask = encoder.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    bias = encoder.score_bias(mask)
    for index in range(encoder.depth):
        x = encoder.layer(x, bias, f"encoder.layer.{index}", f"layer{index}")
    encoder.sentence(x, mask)
    encoder.require_all_used(UNUSED)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [1, length])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence", TensorProto.FLOAT, [1, encoder.width])
    return encoder.model("minilm", inputs, [output], opset=OPSET)


class _Encoder(Construction):
    """The parts of the network; every method appends nodes and returns its result's name."""

    def __init__(self, weights: Weights, length: int) -> None:
        super().__init__(weights)
        if POSITIONS not in weights or not 0 < length <= len(weights[POSITIONS]):
            raise DataError(f"no positions for {length} tokens: other weights?", code="TW-1223")
        self.length, self.width = length, weights[POSITIONS].shape[1]
        self.depth = sum(n.endswith(".intermediate.dense.weight") for n in weights)
        heads = self.width // HEAD_SIZE
        self.shapes = {
            "heads": self._shape("shape.heads", 1, length, heads, HEAD_SIZE),
            "tokens": self._shape("shape.tokens", 1, length, self.width),
        }
        self.scalars = {
            "one": self.constant("one", np.array(1, np.float32)),
            "half": self.constant("half", np.array(0.5, np.float32)),
            "root2": self.constant("root2", np.array(math.sqrt(2), np.float32)),
            "masked": self.constant("masked", np.array(MASKED, np.float32)),
            "scale": self.constant("scale", np.array(HEAD_SIZE**-0.5, np.float32)),
        }

    def _shape(self, name: str, *dims: int) -> str:
        return self.constant(name, np.array(dims, np.int64))

    def linear(self, x: str, source: str, name: str) -> str:
        """x times the weight, plus the bias."""
        weight = self.constant(f"{name}.weight", self.take(f"{source}.weight").T)
        bias = self.constant(f"{name}.bias", self.take(f"{source}.bias"))
        return self.node("Add", [self.node("MatMul", [x, weight], f"{name}.product"), bias], name)

    def normalised(self, x: str, source: str, name: str) -> str:
        """LayerNorm over the channels."""
        affine = [
            self.constant(f"{name}.{part}", self.take(f"{source}.{part}"))
            for part in ("weight", "bias")
        ]
        return self.node("LayerNormalization", [x, *affine], name, axis=-1, epsilon=EPSILON)

    def embedding(self, ids: str) -> str:
        """Word, position and token-type vectors, of the first type everywhere; normalised."""
        words = self.constant("embedding.words", self.take(WORDS))
        types = self.take("embeddings.token_type_embeddings.weight")
        places = self.take(POSITIONS)[: self.length] + types[0]
        x = self.node("Gather", [words, ids], "embedding.word", axis=0)
        x = self.node("Add", [x, self.constant("embedding.places", places)], "embedding.sum")
        return self.normalised(x, "embeddings.LayerNorm", "embedding")

    def score_bias(self, mask: str) -> str:
        """[1, 1, 1, length]: 0 for a token that counts, MASKED for padding."""
        padding = self.node("Sub", [self.scalars["one"], mask], "mask.padding")
        bias = self.node("Mul", [padding, self.scalars["masked"]], "mask.bias")
        shape = self._shape("shape.bias", 1, 1, 1, self.length)
        return self.node("Reshape", [bias, shape], "mask.scores")

    def layer(self, x: str, bias: str, source: str, name: str) -> str:
        """Attention and perceptron, each added to its input and normalised."""
        y = self.attention(x, bias, f"{source}.attention", f"{name}.attention")
        x = self.node("Add", [x, y], f"{name}.sum1")
        x = self.normalised(x, f"{source}.attention.output.LayerNorm", f"{name}.norm1")
        y = self.gelu(self.linear(x, f"{source}.intermediate.dense", f"{name}.wide"), name)
        y = self.linear(y, f"{source}.output.dense", f"{name}.narrow")
        x = self.node("Add", [x, y], f"{name}.sum2")
        return self.normalised(x, f"{source}.output.LayerNorm", f"{name}.norm2")

    def attention(self, x: str, bias: str, source: str, name: str) -> str:
        """Multi-head attention of x [1, length, width]."""
        query = self.heads(x, f"{source}.self.query", f"{name}.query", [0, 2, 1, 3])
        key = self.heads(x, f"{source}.self.key", f"{name}.key", [0, 2, 3, 1])
        value = self.heads(x, f"{source}.self.value", f"{name}.value", [0, 2, 1, 3])
        y = self.node("MatMul", [query, key], f"{name}.scores")
        y = self.node("Mul", [y, self.scalars["scale"]], f"{name}.scaled")
        y = self.node("Add", [y, bias], f"{name}.masked")
        y = self.node("Softmax", [y], f"{name}.weights", axis=-1)
        y = self.node("MatMul", [y, value], f"{name}.context")
        y = self.node("Transpose", [y], f"{name}.gathered", perm=[0, 2, 1, 3])
        y = self.node("Reshape", [y, self.shapes["tokens"]], f"{name}.joined")
        return self.linear(y, f"{source}.output.dense", f"{name}.output")

    def heads(self, x: str, source: str, name: str, order: list[int]) -> str:
        """A projection of x, split into heads and transposed."""
        y = self.linear(x, source, name)
        y = self.node("Reshape", [y, self.shapes["heads"]], f"{name}.split")
        return self.node("Transpose", [y], f"{name}.heads", perm=order)

    def gelu(self, x: str, name: str) -> str:
        """x (1 + erf(x / sqrt 2)) / 2."""
        y = self.node("Div", [x, self.scalars["root2"]], f"{name}.gelu.x")
        y = self.node("Erf", [y], f"{name}.gelu.erf")
        y = self.node("Add", [y, self.scalars["one"]], f"{name}.gelu.gate")
        y = self.node("Mul", [x, y], f"{name}.gelu.twice")
        return self.node("Mul", [y, self.scalars["half"]], f"{name}.gelu")

    def sentence(self, x: str, mask: str) -> str:
        """The sum over the tokens that count, of length 1."""
        row = self.node("Reshape", [mask, self._shape("shape.row", 1, 1, self.length)], "pool.row")
        total = self.node("MatMul", [row, x], "pool.total")
        total = self.node("Reshape", [total, self._shape("shape.sentence", 1, self.width)], "pool")
        length = self.node("ReduceL2", [total], "pool.length", axes=[-1], keepdims=1)
        return self.node("Div", [total, length], "sentence")
