"""What a form function sees of the node that it brings to canonical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.errors import ModelError
from tilewright.importer.edit import Attribute, Editor
from tilewright.importer.evaluate import evaluate
from tilewright.importer.graphs import (
    Array,
    array_of,
    float_attribute,
    input_at,
    int_attribute,
    ints_attribute,
    static_shape,
    string_attribute,
)


@dataclass(frozen=True)
class Site:
    """One node of the source model, its opset, and the means to write what replaces it.

    Inputs are typed; they are constant or computed by nodes that are canonical already.
    """

    node: ir.Node
    opset: int
    editor: Editor

    def has(self, index: int) -> bool:
        return input_at(self.node, index) is not None

    def input(self, index: int) -> ir.Value:
        value = input_at(self.node, index)
        if value is None:
            raise self.error(f"lacks its input {index}")
        return value

    def constant(self, index: int) -> Array | None:
        return array_of(input_at(self.node, index))

    def shape(self, index: int = 0) -> tuple[int, ...] | None:
        return static_shape(input_at(self.node, index))

    def rank(self, index: int = 0) -> int | None:
        value = input_at(self.node, index)
        return None if value is None or value.shape is None else value.shape.rank()

    def int_attribute(self, name: str, default: int) -> int:
        return int_attribute(self.node, name, default)

    def float_attribute(self, name: str, default: float) -> float:
        return float_attribute(self.node, name, default)

    def string_attribute(self, name: str, default: str) -> str:
        return string_attribute(self.node, name, default)

    def ints_attribute(self, name: str) -> tuple[int, ...] | None:
        return ints_attribute(self.node, name)

    def axis(self, name: str, default: int, index: int = 0) -> int:
        """The attribute as an axis >= 0 of input `index` when its rank is known."""
        axis, rank = self.int_attribute(name, default), self.rank(index)
        return axis + rank if axis < 0 and rank is not None else axis

    def new_ints(self, values: Sequence[int], role: str) -> ir.Value:
        return self.editor.constant(np.asarray(values, np.int64), f"{self.node.name}_{role}")

    def new_constant(self, array: Array, role: str) -> ir.Value:
        return self.editor.constant(array, f"{self.node.name}_{role}")

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> ir.Value:
        """Write a one-output canonical node; comes back as a constant when its inputs are."""
        return self.emit_many(op_type, inputs, attributes, 1)[0]

    def emit_many(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute] | None,
        outputs: int,
    ) -> list[ir.Value]:
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        made = self.editor.emit(
            op_type,
            trimmed,
            attributes,
            before=self.node,
            sources=(self.node,),
            outputs=outputs,
        )
        node = made[0].producer()
        assert node is not None
        arrays = evaluate(node, self.editor.opset)
        if arrays is None:
            return made
        self.editor.discard(node)
        return [self.new_constant(array, "folded") for array in arrays]

    def error(self, what: str) -> ModelError:
        return ModelError(f"node {self.node.name!r} ({self.node.op_type}) {what}", code="TW-1111")
