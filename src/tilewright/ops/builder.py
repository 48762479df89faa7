"""Collects the integer graph while matched patterns are bound to their scales.

Layout is decided here, lazily: every stored tensor remembers which ONNX axis each stored axis
holds, a binder asks for the layout it needs, and a Transpose is made only where the two differ.
Transposes that merely undo each other therefore never exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.errors import QuantizationError
from tilewright.graph import Border, DType, Encoding, Graph, Node, Operator, TensorType
from tilewright.ops.pattern import FloatGraph, Note, QuantizedConstant, Site, shape_of
from tilewright.ops.reshape import Reshape
from tilewright.ops.transpose import Transpose

Permutation = tuple[int, ...]


def channels_last(rank: int) -> Permutation:
    """Stored order of an ONNX N,C,... tensor; ranks 0 to 2 stay as they are."""
    return tuple(range(rank)) if rank < 3 else (0, *range(2, rank), 1)


def onnx_order(rank: int) -> Permutation:
    return tuple(range(rank))


@dataclass(frozen=True)
class Operand:
    """A stored tensor: stored axis i holds ONNX axis `permutation[i]`."""

    name: str
    type: TensorType
    permutation: Permutation

    def axis(self, onnx_axis: int) -> int:
        """The stored axis of an ONNX axis (negative ones count from the end)."""
        return self.permutation.index(onnx_axis % len(self.permutation))


@dataclass(frozen=True)
class WeightCodes:
    """Quantized weights, output channels first.

    Args:
        codes: [C, ...] integers.
        scale: float32 [C]
        zero_point: one for all.
    """

    codes: npt.NDArray[Any]
    dtype: DType
    scale: npt.NDArray[np.float32]
    zero_point: int


@dataclass
class Builder:
    """The graph under construction; `operands` maps ONNX values to stored tensors."""

    float_graph: FloatGraph
    tensors: dict[str, TensorType] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    operands: dict[str, Operand] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _moved: dict[tuple[str, tuple[int, ...]], Operand] = field(default_factory=dict)
    _source: tuple[str, ...] = ()

    def begin(self, site: Site) -> None:
        """Nodes emitted from now on stand for `site`."""
        self._source = tuple(n.name or n.op_type for n in site.nodes)

    def encoding(self, value: ir.Value) -> Encoding:
        """The encoding of an activation.

        Raises:
            QuantizationError: the model gives none.
        """
        found = self.float_graph.encoding(value)
        if found is None:
            raise QuantizationError(
                f"tensor {value.name} has no scale in the quantized model",
                fix="calibrate it with `tilewright quantize`",
                code="TW-3110",
            )
        return found

    def passed_encoding(self, value: ir.Value, x: Operand) -> Encoding:
        """The encoding that the model gives `value`, else that of the input it is moved from."""
        return self.float_graph.encoding(value) or x.type.encoding

    def operand(self, value: ir.Value, permutation: Permutation | None = None) -> Operand:
        """The stored tensor of an ONNX value, permuted where the layout differs.

        Args:
            permutation: the layout wanted; None takes the one that is there.
        """
        found = self.operands[value.name or ""]
        if permutation is None or permutation == found.permutation:
            return found
        return self.permuted(found, permutation)

    def permuted(self, operand: Operand, permutation: Permutation) -> Operand:
        """The same ONNX tensor stored in another order; a size-1 shuffle is only a reshape."""
        axes = tuple(operand.permutation.index(p) for p in permutation)
        known = self._moved.get((operand.name, axes))
        if known is not None:
            return Operand(known.name, known.type, permutation)
        shape = tuple(operand.type.shape[a] for a in axes)
        kept = [a for a in axes if operand.type.shape[a] != 1]
        op: Operator = Reshape(shape) if kept == sorted(kept) else Transpose(axes)
        moved = self.add(op, [operand], operand.type.encoding, permutation)
        self._moved[operand.name, axes] = moved
        return moved

    def add(
        self,
        op: Operator,
        inputs: list[Operand],
        encoding: Encoding,
        permutation: Permutation,
        value: ir.Value | None = None,
    ) -> Operand:
        """Append a node with one output.

        Args:
            encoding: of the output.
            permutation: of the output.
            value: the ONNX value that the output stands for, None for an intermediate one.
        """
        base = value.name if value is not None else None
        where = self._source[-1] if self._source else type(op).__name__
        name = self._unique(
            base or f"{inputs[0].name if inputs else where}.{type(op).__name__.lower()}"
        )
        types = [i.type for i in inputs]
        (shape,) = op.infer(types, where)
        self.tensors[name] = TensorType(encoding.dtype, shape, encoding.scale, encoding.zero_point)
        node_name = self._unique(f"{where}/{type(op).__name__}")
        self.nodes.append(Node(node_name, op, tuple(i.name for i in inputs), (name,), self._source))
        operand = Operand(name, self.tensors[name], permutation)
        if value is not None:
            self.operands[value.name or ""] = operand
        return operand

    def alias(self, value: ir.Value, operand: Operand) -> None:
        """`value` is the tensor `operand`, without any work."""
        self.operands[value.name or ""] = operand

    def add_input(
        self,
        value: ir.Value,
        pixel_table: npt.NDArray[Any] | None = None,
        pixel_channels: tuple[int, ...] = (),
    ) -> Border:
        """A float graph input, quantized at the border into channels-last order.

        Args:
            pixel_table: codes [256, channels] of built-in preprocessing.
            pixel_channels: source channel of each stored channel.
        """
        encoding = self.encoding(value)
        shape = shape_of(value)
        permutation = channels_last(len(shape))
        stored = tuple(shape[p] for p in permutation)
        name = self._unique(value.name or "input")
        self.tensors[name] = TensorType(encoding.dtype, stored, encoding.scale, encoding.zero_point)
        self.operands[value.name or ""] = Operand(name, self.tensors[name], permutation)
        return Border(value.name or "", name, shape, permutation, pixel_table, pixel_channels)

    def output(self, value: ir.Value) -> Border:
        """A graph output, dequantized at the border."""
        operand = self.operands[value.name or ""]
        return Border(value.name or "", operand.name, shape_of(value), operand.permutation)

    def graph(self, name: str, inputs: list[Border], outputs: list[Border]) -> Graph:
        """The finished graph; tensors that nothing reads are dropped with their nodes."""
        wanted = {b.tensor for b in outputs}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(o in wanted for o in node.outputs):
                kept.append(node)
                wanted.update(node.inputs)
        used = wanted | {b.tensor for b in inputs}
        tensors = {n: t for n, t in self.tensors.items() if n in used}
        return Graph(name, tensors, tuple(reversed(kept)), tuple(inputs), tuple(outputs))

    def weights(self, site: Site) -> WeightCodes:
        """Codes of the site's constant operand.

        Raises:
            QuantizationError: it is not quantized, or quantized in a way that R24 does not define.
        """
        assert site.weights is not None
        value, axis = site.weights.value, site.weights.axis
        found = self.float_graph.constants.get(value.name or "")
        if found is None:
            raise QuantizationError(
                f"{site.name}: its weight {value.name} is not quantized",
                fix="quantize the model with `tilewright quantize` or per-channel QDQ weights",
                code="TW-3111",
            )
        if found.axis is not None and found.axis != axis and found.scale.size > 1:
            raise QuantizationError(
                f"{site.name}: its weight is quantized along axis {found.axis}, "
                f"its output channels are axis {axis}",
                code="TW-3112",
            )
        codes, zero = _one_zero_point(found, axis, site.name)
        scale = np.broadcast_to(found.scale.astype(np.float32), codes.shape[:1])
        return WeightCodes(codes, found.dtype, scale, zero)

    def note(self, code: str, text: str) -> None:
        """Remember a sentence for the report."""
        self.notes.append(Note(code, text))

    def _unique(self, name: str) -> str:
        candidate, n = name, 1
        while candidate in self._names:
            candidate, n = f"{name}.{n}", n + 1
        self._names.add(candidate)
        return candidate


def _one_zero_point(
    constant: QuantizedConstant, axis: int, where: str
) -> tuple[npt.NDArray[Any], int]:
    """The codes, output channels first, around a zero point that all channels share.

    Channels of zeros often have a zero point of their own; their codes move to the others'.

    Raises:
        QuantizationError: the codes of all channels do not fit their type around one zero point.
    """
    codes = np.moveaxis(constant.codes, axis, 0)
    if np.ptp(constant.zero_point) == 0:
        return codes, int(constant.zero_point.reshape(-1)[0])
    points = constant.zero_point.reshape(-1, *[1] * (codes.ndim - 1))
    centred = codes.astype(np.int64) - points
    used = points.reshape(-1)[centred.reshape(len(codes), -1).any(axis=1)]
    zero = int(used[0]) if used.size else int(points.min())
    moved = centred + zero
    info = np.iinfo(codes.dtype)
    if moved.min() < info.min or moved.max() > info.max:
        raise QuantizationError(
            f"{where}: its weight has a zero point for each channel",
            fix="quantize its weight symmetrically",
            code="TW-3113",
        )
    return moved.astype(codes.dtype), zero
