"""EfficientNet-Lite as ONNX, rebuilt from its published description and a state dict.

A 3x3 stem, seven stages of inverted-residual blocks with ReLU6 and without squeeze-and-excitation,
a 1x1 head, global average pooling and one fully connected layer (Tan and Le 2019, arXiv:1905.11946;
the Lite variants are described with the TPU reference models).

Input `image`: float32 [batch, 3, S, S], RGB, (pixel - 127) / 128.
Output `logits`: float32 [batch, 1000] in the usual ImageNet-1k order.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.assets.checkpoint import Weights, read_state_dict
from tilewright.assets.construction import Construction, save_model

if TYPE_CHECKING:
    import onnx

VARIANTS = {"lite0": (224, 1.0), "lite1": (240, 1.1)}
"""Input size and depth multiplier."""

STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))
"""Blocks at depth 1.0 and stride of the first; kernels and channels are read off the weights."""

BATCHNORM_EPSILON = 1e-3
OPSET = 13


def convert(
    weights: str | Path, target: str | Path, variant: str = "lite0", *, fold_batchnorm: bool = True
) -> None:
    """Read a `.pth` state dict and write the ONNX file under its final name when complete.

    With `fold_batchnorm` off, the BatchNormalization nodes stay and the batch is dynamic.
    """
    model = build(read_state_dict(weights), variant, fold_batchnorm=fold_batchnorm)
    save_model(model, Path(target))


def build(
    weights: Weights, variant: str = "lite0", *, fold_batchnorm: bool = True
) -> onnx.ModelProto:
    """The network of a state dict.

    Raises:
        DataError: weights of another variant.
    """
    from onnx import TensorProto, helper

    image, depth = VARIANTS[variant]
    network = _Network(weights, fold_batchnorm)
    x, size = network.conv("image", "stem", "_conv_stem", "_bn0", image, stride=2)
    for index, stride in enumerate(block_strides(depth)):
        x, size = network.block(x, index, size, stride)
    x, size = network.conv(x, "head", "_conv_head", "_bn1", size)
    x = network.node("GlobalAveragePool", [x], "pool")
    x = network.node("Flatten", [x], "flatten", axis=1)
    dense = [network.constant(f"fc.{k}", network.take(f"_fc.{k}")) for k in ("weight", "bias")]
    network.node("Gemm", [x, *dense], "logits", transB=1)
    network.require_all_used(("num_batches_tracked",))

    batch: int | str = 1 if fold_batchnorm else "batch"
    return network.model(
        f"efficientnet_{variant}",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, image, image])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])],
        opset=OPSET,
    )


def block_strides(depth: float) -> list[int]:
    """Stride of every block; the first and the last stage are never deepened."""
    strides: list[int] = []
    for index, (count, stride) in enumerate(STAGES):
        inner = 0 < index < len(STAGES) - 1
        repeats = math.ceil(count * depth) if inner else count
        strides += [stride] + [1] * (repeats - 1)
    return strides


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's SAME padding: the odd row goes to the end."""
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class _Network(Construction):
    """The parts of the network."""

    def __init__(self, weights: Weights, fold_batchnorm: bool) -> None:
        super().__init__(weights)
        self._fold = fold_batchnorm
        self.constant("zero", np.array(0.0, np.float32))
        self.constant("six", np.array(6.0, np.float32))

    def block(self, x: str, index: int, size: int, stride: int) -> tuple[str, int]:
        """One inverted-residual block; returns its output and the output's size."""
        source, name = f"_blocks.{index}", f"block{index}"
        expand = f"{source}._expand_conv"
        y = x
        if f"{expand}.weight" in self.weights:
            y, size = self.conv(y, f"{name}.expand", expand, f"{source}._bn0", size)
        depthwise = f"{source}._depthwise_conv"
        y, size = self.conv(
            y, f"{name}.depthwise", depthwise, f"{source}._bn1", size, stride, depthwise=True
        )
        y, size = self.conv(
            y, f"{name}.project", f"{source}._project_conv", f"{source}._bn2", size, relu6=False
        )
        if f"{expand}.weight" in self.weights:
            channels_in = self.weights[f"{expand}.weight"].shape[1]
        else:
            channels_in = self.weights[f"{depthwise}.weight"].shape[0]
        if stride == 1 and channels_in == self.weights[f"{source}._project_conv.weight"].shape[0]:
            y = self.node("Add", [y, x], f"{name}.add")
        return y, size

    def conv(
        self,
        x: str,
        name: str,
        conv: str,
        norm: str,
        size: int,
        stride: int = 1,
        *,
        depthwise: bool = False,
        relu6: bool = True,
    ) -> tuple[str, int]:
        """Convolution, batch normalisation and ReLU6; returns the output and its size."""
        weight = self.take(f"{conv}.weight")
        kernel = weight.shape[2]
        low, high = same_pads(size, kernel, stride)
        attributes = {
            "kernel_shape": [kernel, kernel],
            "strides": [stride, stride],
            "pads": [low, low, high, high],
            "group": weight.shape[0] if depthwise else 1,
        }
        y = self._normalised(x, name, weight, norm, attributes)
        if relu6:
            y = self.node("Clip", [y, "zero", "six"], f"{name}.relu6")
        return y, math.ceil(size / stride)

    def _normalised(
        self,
        x: str,
        name: str,
        weight: npt.NDArray[np.float32],
        norm: str,
        attributes: dict[str, Any],
    ) -> str:
        parts = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
        scale, bias, mean, var = (self.take(f"{norm}.{key}") for key in parts.values())
        if not self._fold:
            y = self.node(
                "Conv", [x, self.constant(f"{name}.weight", weight)], f"{name}.conv", **attributes
            )
            values = zip(parts, (scale, bias, mean, var), strict=True)
            inputs = [self.constant(f"{name}.bn.{part}", value) for part, value in values]
            return self.node(
                "BatchNormalization", [y, *inputs], f"{name}.bn", epsilon=BATCHNORM_EPSILON
            )
        factor = scale.astype(np.float64) / np.sqrt(var.astype(np.float64) + BATCHNORM_EPSILON)
        folded = {
            "weight": (weight * factor.reshape(-1, 1, 1, 1)).astype(np.float32),
            "bias": (bias - mean * factor).astype(np.float32),
        }
        constants = [self.constant(f"{name}.{key}", value) for key, value in folded.items()]
        return self.node("Conv", [x, *constants], f"{name}.conv", **attributes)
