"""LSTM and GRU of a fixed, short length become their steps.

With X W^T for all steps in one product, step t of one direction is (gates in ONNX's order)

    LSTM  i, o, f, c = split(X_t W^T + h R^T + b)        C = sigmoid(f) C + sigmoid(i) tanh(c)
                                                         h = sigmoid(o) tanh(C)
    GRU   z, r = sigmoid(split(X_t W^T + h R^T + b))     n = tanh(X_t W_n^T + b_n + rh)
                                                         h = n + z (h - n)

where rh = r (h R_n^T + c_n), or (r h) R_n^T + c_n without linear_before_reset.  The state carries
its error from step to step: its values are marked to keep 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.edit import Editor, PassResult
from tilewright.importer.graphs import array_of, input_at, int_attribute, static_shape
from tilewright.ops.pattern import WIDE

NAME = "recurrent"

MOST_STEPS = 64

GATES = {"LSTM": 4, "GRU": 3}

Array = npt.NDArray[Any]


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.op_type in GATES and node.domain == "" and node.graph is not None:
            layer = _layer(node)
            if layer is not None:
                _unroll(editor, layer)
                changes += 1
    return PassResult(NAME, changes)


@dataclass(frozen=True)
class _Layer:
    """A recurrent node that can be unrolled.

    Args:
        steps, batch, hidden: sizes.
        directions: for each direction, whether it runs backwards.
        weight, recurrence, bias: [D, gates*H, I], [D, gates*H, H], [D, 2*gates*H].
    """

    node: ir.Node
    steps: int
    batch: int
    hidden: int
    directions: tuple[bool, ...]
    weight: Array
    recurrence: Array
    bias: Array


def _layer(node: ir.Node) -> _Layer | None:
    x = input_at(node, 0)
    shape = static_shape(x) if x is not None else None
    weight, recurrence = array_of(input_at(node, 1)), array_of(input_at(node, 2))
    if shape is None or weight is None or recurrence is None or not 0 < shape[0] <= MOST_STEPS:
        return None
    plain = {"hidden_size", "direction", "linear_before_reset", "layout"}
    if any(name not in plain for name in node.attributes) or int_attribute(node, "layout", 0):
        return None
    lengths = input_at(node, 4)
    given = array_of(lengths)
    if lengths is not None and (given is None or (given != shape[0]).any()):
        return None
    if input_at(node, 7) is not None:
        return None
    bias = array_of(input_at(node, 3))
    if input_at(node, 3) is not None and bias is None:
        return None
    directions, rows, hidden = recurrence.shape
    stated = node.attributes.get("direction")
    name = "forward" if stated is None else stated.as_string()
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[name]
    zeros = np.zeros((directions, 2 * rows), weight.dtype)
    return _Layer(
        node, shape[0], shape[1], hidden, backwards, weight, recurrence,
        zeros if bias is None else bias,
    )  # fmt: skip


class _Writer:
    """Emits nodes for one layer."""

    def __init__(self, editor: Editor, node: ir.Node) -> None:
        self.editor, self.node = editor, node

    def emit(
        self, op_type: str, *inputs: ir.Value, outputs: int = 1, **attributes: Any
    ) -> list[ir.Value]:
        return self.editor.emit(
            op_type, inputs, attributes, before=self.node, sources=(self.node,), outputs=outputs
        )

    def one(self, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        return self.emit(op_type, *inputs, **attributes)[0]

    def wide(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        """One value of the state."""
        value = self.one(op_type, *inputs)
        producer = value.producer()
        assert producer is not None
        producer.metadata_props[WIDE] = "1"
        return value

    def constant(self, array: Array, what: str) -> ir.Value:
        return self.editor.constant(array, f"{self.node.name}_{what}")

    def shape(self, *dims: int) -> ir.Value:
        return self.constant(np.asarray(dims, np.int64), "shape")

    def split(self, value: ir.Value, count: int, axis: int) -> list[ir.Value]:
        if count == 1:
            return [value]
        return self.emit("Split", value, outputs=count, axis=axis, num_outputs=count)


State = tuple[ir.Value, ...]
"""h, and the cell of an LSTM."""


def _unroll(editor: Editor, layer: _Layer) -> None:
    writer = _Writer(editor, layer.node)
    hidden: list[list[ir.Value]] = []
    last: list[State] = []
    for number, backwards in enumerate(layer.directions):
        outputs, state = _direction(writer, layer, number, backwards)
        hidden.append(outputs)
        last.append(state)
    _write_outputs(writer, layer, hidden, last)


def _direction(
    writer: _Writer, layer: _Layer, number: int, backwards: bool
) -> tuple[list[ir.Value], State]:
    """The hidden states of all steps, in the order of the input, and the last state."""
    x = input_at(layer.node, 0)
    assert x is not None
    kinds: dict[str, type[_Lstm] | type[_Gru]] = {"LSTM": _Lstm, "GRU": _Gru}
    cell: _Cell = kinds[layer.node.op_type](writer, layer, number)
    weight = writer.constant(layer.weight[number].T.copy(), "weight")
    bias = writer.constant(cell.input_bias.reshape(-1), "bias")
    projected = writer.one("Add", writer.one("MatMul", x, weight), bias)
    flat = writer.shape(layer.batch, GATES[layer.node.op_type] * layer.hidden)
    inputs = [writer.one("Reshape", part, flat) for part in writer.split(projected, layer.steps, 0)]
    state = _first_state(writer, layer, number)
    outputs: list[ir.Value] = []
    for value in reversed(inputs) if backwards else inputs:
        state = cell.step(value, state)
        outputs.append(state[0])
    return outputs[::-1] if backwards else outputs, state


def _first_state(writer: _Writer, layer: _Layer, number: int) -> State:
    """The initial state of one direction; zeros where none is given."""
    places = (5, 6) if layer.node.op_type == "LSTM" else (5,)
    state = []
    for place in places:
        given = input_at(layer.node, place)
        array = array_of(given)
        if given is None:
            zeros = np.zeros((layer.batch, layer.hidden), layer.weight.dtype)
            state.append(writer.constant(zeros, "state"))
        elif array is not None:
            state.append(writer.constant(array[number].copy(), "state"))
        else:
            part = writer.split(given, len(layer.directions), 0)[number]
            flat = writer.shape(layer.batch, layer.hidden)
            state.append(writer.one("Reshape", part, flat))
    return tuple(state)


def _is_zero(value: ir.Value) -> bool:
    array = array_of(value)
    return array is not None and not array.any()


class _Cell(Protocol):
    """One direction of a layer."""

    @property
    def input_bias(self) -> Array:
        """[gates, H], added to the product of the input."""

    def step(self, x: ir.Value, state: State) -> State:
        """The next state; `x` [B, gates*H] is the input's product with its bias."""


class _Lstm:
    def __init__(self, writer: _Writer, layer: _Layer, number: int) -> None:
        self.writer = writer
        self.input_bias: Array = layer.bias[number].reshape(2, 4, layer.hidden).sum(axis=0)
        self.recurrence = writer.constant(layer.recurrence[number].T.copy(), "recurrence")

    def step(self, x: ir.Value, state: State) -> State:
        one, wide = self.writer.one, self.writer.wide
        h, cell = state
        gates = x if _is_zero(h) else one("Add", x, one("MatMul", h, self.recurrence))
        i, o, f, c = self.writer.split(gates, 4, 1)
        new = one("Mul", one("Sigmoid", i), one("Tanh", c))
        if not _is_zero(cell):
            new = wide("Add", wide("Mul", one("Sigmoid", f), cell), new)
        return one("Mul", one("Sigmoid", o), one("Tanh", new)), new


class _Gru:
    def __init__(self, writer: _Writer, layer: _Layer, number: int) -> None:
        self.writer, self.size = writer, layer.hidden
        self.linear = bool(int_attribute(layer.node, "linear_before_reset", 0))
        halves = layer.bias[number].reshape(2, 3, layer.hidden)
        self.input_bias: Array = halves.sum(axis=0)
        matrix = layer.recurrence[number].T
        self.gates = writer.constant(matrix[:, : 2 * self.size].copy(), "recurrence")
        self.new = writer.constant(matrix[:, 2 * self.size :].copy(), "reset")
        if self.linear:
            self.input_bias[2] = halves[0, 2]
            self.new_bias = writer.constant(halves[1, 2].copy(), "reset_bias")

    def step(self, x: ir.Value, state: State) -> State:
        one = self.writer.one
        (h,) = state
        gates, new = self.writer.emit(
            "Split", x, self.writer.shape(2 * self.size, self.size), outputs=2, axis=1
        )
        if not _is_zero(h):
            gates = one("Add", gates, one("MatMul", h, self.gates))
        z, r = self.writer.split(one("Sigmoid", gates), 2, 1)
        new = one("Tanh", self._with_reset(new, r, h))
        if _is_zero(h):
            return (self.writer.wide("Sub", new, one("Mul", z, new)),)
        return (self.writer.wide("Add", new, one("Mul", z, one("Sub", h, new))),)

    def _with_reset(self, new: ir.Value, r: ir.Value, h: ir.Value) -> ir.Value:
        """What the reset gate leaves of the recurrence, added to the new gate's input."""
        one = self.writer.one
        if self.linear:
            before = self.new_bias
            if not _is_zero(h):
                before = one("Add", one("MatMul", h, self.new), before)
            return one("Add", new, one("Mul", r, before))
        if _is_zero(h):
            return new
        return one("Add", new, one("MatMul", one("Mul", r, h), self.new))


def _write_outputs(
    writer: _Writer, layer: _Layer, hidden: Sequence[Sequence[ir.Value]], last: Sequence[State]
) -> None:
    """Y [T, D, B, H], Y_h and Y_c [D, B, H], as far as they are read."""
    one_step = writer.shape(1, 1, layer.batch, layer.hidden)
    one_state = writer.shape(1, layer.batch, layer.hidden)

    def joined(values: Sequence[ir.Value], shape: ir.Value, axis: int) -> ir.Value:
        parts = [writer.one("Reshape", value, shape) for value in values]
        return parts[0] if len(parts) == 1 else writer.one("Concat", *parts, axis=axis)

    makers: list[Callable[[], ir.Value]] = [
        lambda: joined([joined(steps, one_step, 1) for steps in zip(*hidden, strict=True)],
                       writer.shape(1, len(hidden), layer.batch, layer.hidden), 0),
        lambda: joined([state[0] for state in last], one_state, 0),
        lambda: joined([state[1] for state in last], one_state, 0),
    ]  # fmt: skip
    for output, make in zip(list(layer.node.outputs), makers, strict=False):
        if output.uses() or output.is_graph_output():
            writer.editor.replace(output, make())
