"""Do the samples look to the first layer as the training pictures did?

A model that still carries the BatchNormalization behind its first convolution tells what mean and
variance that convolution's output had in training.  Wrong preprocessing shows there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.data.checks import CalibrationWarning, first_layer_statistics
from tilewright.inference import InferenceSession

if TYPE_CHECKING:
    import onnx

SAMPLES = 16


def first_layer_warning(model: Path, feeds: Iterable[dict[str, Any]]) -> CalibrationWarning | None:
    """Compare the first convolution's output with the statistics of its BatchNormalization.

    Args:
        model: the file as it was given, before BatchNormalization is folded.
        feeds: samples; the first SAMPLES count.

    Returns:
        None where all is well, or where the model has no such pair.
    """
    import onnx
    import onnx.numpy_helper

    proto = onnx.load(model)
    found = _first_pair(proto)
    if found is None:
        return None
    convolution, normalisation = found
    constants = {t.name: t for t in proto.graph.initializer}
    mean, variance = (
        onnx.numpy_helper.to_array(constants[name]).astype(np.float64)
        for name in normalisation.input[3:5]
    )
    epsilon = next((a.f for a in normalisation.attribute if a.name == "epsilon"), 1e-5)
    observed = _statistics(_alone(proto, convolution), convolution, feeds)
    return first_layer_statistics(*observed, mean, np.sqrt(variance + epsilon))


def _first_pair(proto: onnx.ModelProto) -> tuple[onnx.NodeProto, onnx.NodeProto] | None:
    """A Conv on a graph input with constant weights, and the BatchNormalization that reads it."""
    constants = {t.name for t in proto.graph.initializer}
    inputs = {i.name for i in proto.graph.input} - constants
    for node in proto.graph.node:
        fed = node.op_type == "Conv" and node.input[0] in inputs
        if not fed or not set(node.input[1:]) <= constants:
            continue
        for reader in proto.graph.node:
            reads = reader.op_type == "BatchNormalization" and reader.input[0] == node.output[0]
            if reads and set(reader.input[1:5]) <= constants:
                return node, reader
    return None


def _alone(proto: onnx.ModelProto, node: onnx.NodeProto) -> onnx.ModelProto:
    """A model of one node."""
    import onnx

    values = onnx.helper.make_graph(
        [node],
        "first layer",
        [i for i in proto.graph.input if i.name == node.input[0]],
        [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)],
        [t for t in proto.graph.initializer if t.name in node.input],
    )
    return onnx.helper.make_model(
        values, opset_imports=list(proto.opset_import), ir_version=proto.ir_version
    )


def _statistics(
    model: onnx.ModelProto, node: onnx.NodeProto, feeds: Iterable[dict[str, Any]]
) -> tuple[Any, Any]:
    """Mean and deviation of every output channel over samples and positions, in float64."""
    session = InferenceSession(model.SerializeToString())
    count, total, squares = 0, 0.0, 0.0
    for _, feed in zip(range(SAMPLES), feeds, strict=False):
        (output,) = session.run(session.outputs, {node.input[0]: feed[node.input[0]]})
        rows = np.moveaxis(output.astype(np.float64), 1, 0).reshape(output.shape[1], -1)
        count += rows.shape[1]
        total += rows.sum(axis=1)
        squares += np.square(rows).sum(axis=1)
    mean = np.asarray(total) / count
    return mean, np.sqrt(np.maximum(np.asarray(squares) / count - mean**2, 0.0))
