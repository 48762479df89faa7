"""The join at the end of a detector: which tensors a last Concat brings together, and where to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.utils
import sessions

MOVEMENT = {"Concat", "Reshape", "Transpose"}


@dataclass(frozen=True)
class Join:
    """A model whose only output is made of several computed tensors by movement alone.

    Args:
        model: the whole model.
        branches: the computed tensors, in the order in which the output's producers read them.
        head: the part that computes them.
        tail: the part that joins them.
        output: name of the output.
    """

    model: onnx.ModelProto
    branches: tuple[str, ...]
    head: onnx.ModelProto
    tail: onnx.ModelProto
    output: str

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Join:
        """Cut a model at its last computed tensors."""
        typed = onnx.shape_inference.infer_shapes(model)
        output = typed.graph.output[0].name
        found = tuple(dict.fromkeys(_leaves(typed, output)))
        parts = onnx.utils.Extractor(typed)
        inputs = [value.name for value in typed.graph.input]
        head = parts.extract_model(inputs, list(found))
        tail = parts.extract_model(list(found), [output])
        return cls(typed, found, head, tail, output)

    def masks(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Branch -> which elements of the output come from it."""
        session = sessions.session(self.tail)
        shapes = {i.name: i.shape for i in session.get_inputs()}
        zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        masks = {}
        for name, shape in shapes.items():
            marked: dict[str, Any] = zeros | {name: np.ones(shape, np.float32)}
            masks[name] = session.run([self.output], marked)[0] > 0
        return masks


def _leaves(model: onnx.ModelProto, output: str) -> Iterator[str]:
    producers = {name: node for node in model.graph.node for name in node.output}
    node = producers[output]
    operands = node.input if node.op_type == "Concat" else node.input[:1]
    for name in operands:
        if name in producers and producers[name].op_type in MOVEMENT:
            yield from _leaves(model, name)
        else:
            yield name
