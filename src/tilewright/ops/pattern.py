"""The float side of an operator: finding it in an ONNX graph, before any scale is known.

`estimate` and the quantizer stop here; lowering goes on to `bind`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.graph import DType, Encoding

Array = npt.NDArray[Any]


WIDE = "pkg.tilewright.wide"
"""Metadata of a node whose outputs should keep 16 bits."""


@dataclass(frozen=True)
class Refusal:
    """Why a node is not an NPU operator: the sentence that the user reads."""

    reason: str


class ScaleRule(enum.Enum):
    """What an operator asks of the scale of its output."""

    FREE = "calibrated"
    PASSED = "that of the first input"
    """Movement: the output takes the first input's encoding."""
    SHARED = "one for all inputs, where their ranges agree"
    FIXED = "given by the function's range"


@dataclass(frozen=True)
class Weights:
    """A constant operand that is quantized per output channel.

    Args:
        value: the ONNX value of the constant.
        axis: its output-channel axis.
        bias: the ONNX value of the bias [C], if any.
    """

    value: ir.Value
    axis: int
    bias: ir.Value | None


@dataclass(frozen=True)
class Site:
    """A matched pattern: one NPU operator whose scales are not yet known.

    Args:
        kind: the operator's name, as `tilewright ops` lists it.
        nodes: the ONNX nodes that it covers, producer first.
        inputs: run-time inputs; each needs an encoding.
        outputs: each gets an encoding.
        pattern: the operator's own shape-level record, read by its `bind`.
        weights: the quantized constant, for products.
        inner: a pre-activation inside the pattern that is quantized to s16 before a table.
        rule: what it asks of its output scale.
        fixed: for ScaleRule.FIXED, the real range (low, high) that the output codes span.
        macs: multiply-accumulates.
        narrow_inputs: the inputs must have 8 bits: no bound could be proven for 16.
    """

    kind: str
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    pattern: Any
    weights: Weights | None = None
    inner: ir.Value | None = None
    rule: ScaleRule = ScaleRule.FREE
    fixed: tuple[float, float] | None = None
    macs: int = 0
    narrow_inputs: bool = False

    @property
    def name(self) -> str:
        return self.nodes[-1].name or self.outputs[0].name or self.kind


@dataclass(frozen=True)
class QuantizedConstant:
    """An initializer behind a DequantizeLinear: `scale * (codes - zero_point)` along `axis`."""

    codes: Array
    dtype: DType
    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    axis: int | None

    def real(self) -> npt.NDArray[np.float32]:
        shape = [1] * self.codes.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        scale, zero = self.scale.reshape(shape), self.zero_point.reshape(shape)
        return np.asarray(
            (self.codes.astype(np.int64) - zero).astype(np.float32) * scale, np.float32
        )


@dataclass(frozen=True)
class Note:
    """What lowering changed of a quantized model or found in it, for the report.

    Args:
        code: the kind.
        text: a sentence that names the operator or tensor.
    """

    code: str
    text: str


@dataclass(frozen=True)
class FloatGraph:
    """A float ONNX graph as the matchers see it.

    Args:
        graph: the canonical graph without any Q/DQ node.
        encodings: value name -> encoding of an activation; None before quantization.
        constants: value name -> codes of a quantized initializer (whose float value is also in
            the graph).
        notes: what was changed while quantizers were read.
    """

    graph: ir.Graph
    encodings: Mapping[str, Encoding] | None = None
    constants: Mapping[str, QuantizedConstant] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def constant(self, value: ir.Value | None) -> Array | None:
        """The array of an initializer, None for anything that is computed."""
        if value is None or value.const_value is None or value.producer() is not None:
            return None
        return value.const_value.numpy()

    def scalar(self, value: ir.Value | None) -> float | None:
        array = self.constant(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def sole_consumer(self, value: ir.Value) -> ir.Node | None:
        """The one node that reads `value`, None for a graph output or another reader.

        Nodes inside a subgraph are none of this graph's.
        """
        uses = value.uses()
        if value.is_graph_output() or len(uses) != 1:
            return None
        node = next(iter(uses)).node
        return node if node.graph is self.graph else None

    def encoding(self, value: ir.Value) -> Encoding | None:
        return None if self.encodings is None else self.encodings.get(value.name or "")

    def hides(self, value: ir.Value) -> bool:
        """May `value` vanish inside a fused operator without an encoding of its own?"""
        return self.encoding(value) is None

    def hides_as_s16(self, value: ir.Value) -> bool:
        """May `value` be the s16 pre-activation of a fused table (section 7 of the arithmetic)?"""
        if self.encodings is None:
            return True
        encoding = self.encoding(value)
        return encoding is not None and encoding.dtype is DType.S16


def reads_of(node: ir.Node) -> list[ir.Value]:
    """Every value that a node reads, each once: its inputs, then what its subgraphs capture."""
    found = [v for v in node.inputs if v is not None]
    for graph in _subgraphs(node):
        nested = [graph, *graph.subgraphs()]
        inside = {v for g in nested for v in (*g.inputs, *g.initializers.values())}
        inside.update(v for g in nested for inner in g for v in inner.outputs)
        for each in nested:
            reads = [v for inner in each for v in inner.inputs]
            found += [v for v in (*reads, *each.outputs) if v is not None and v not in inside]
    return list(dict.fromkeys(found))


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The static shape; canonical graphs have one for every value."""
    assert value.shape is not None, f"{value.name} has no shape"
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]


def attribute_ints(node: ir.Node, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    found = node.attributes.get(name)
    return tuple(found.as_ints()) if found is not None else default


def attribute_int(node: ir.Node, name: str, default: int = 0) -> int:
    found = node.attributes.get(name)
    return int(found.as_int()) if found is not None else default


def attribute_float(node: ir.Node, name: str, default: float) -> float:
    found = node.attributes.get(name)
    return float(found.as_float()) if found is not None else default


def attribute_string(node: ir.Node, name: str, default: str = "") -> str:
    found = node.attributes.get(name)
    return found.as_string() if found is not None else default
