"""A per-channel affine function after a product or a normalisation moves into its constants.

    (W x + b) * s + t = (W * s) x + (b * s + t)
    LayerNormalization(x; g, b) * s + t = LayerNormalization(x; g * s, b * s + t)

for BatchNormalization, Mul and Add by constants, also behind Reshape, Transpose, Slice and Split,
as long as the function is the same for all elements of a channel of the product; in float64,
rounded once.  Only when nothing else reads the values between.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.affine import Float64, along_axis, elementwise_of
from tilewright.importer.edit import Editor, NearMiss, PassResult
from tilewright.importer.graphs import static_shape
from tilewright.importer.movement import Labels, Route, channel_labels, replay, route_to, start_of
from tilewright.importer.sinks import Sink, matrix_of, sink_of

NAME = "affine_after"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        obstacle = _fold(editor, node) if node.graph is not None else ""
        if obstacle is None:
            changes += 1
        elif obstacle and node.op_type == "BatchNormalization":
            misses.append(NearMiss.at(node, NAME, obstacle))
    return PassResult(NAME, changes, tuple(misses))


def _fold(editor: Editor, node: ir.Node) -> str | None:
    """None when the node is gone; else why it stays, empty where nothing could take it."""
    operands = elementwise_of(node)
    if operands is None or (node.op_type == "Add" and matrix_of(node) is not None):
        return ""
    data, scale, shift = operands
    start = start_of(data)
    sink = sink_of(start)
    if sink is None:
        return ""
    route = route_to(data, node)
    if route is None:
        return f"a value between {start.name} and it is read elsewhere too"
    factors = _per_channel(route, sink, (scale, shift))
    if factors is None:
        return f"it differs among the elements of a channel of {start.name}"
    if not _absorb(editor, node, route, sink, *factors):
        return f"its constants do not fit those of {start.name}"
    return None


def _absorb(
    editor: Editor, node: ir.Node, route: Route, sink: Sink, scale: Float64, shift: Float64
) -> bool:
    """Let the sink compute `scale` and `shift` too, so that the route ends in the node's output."""
    sources = [*sink.nodes, *(step.node for step in route.steps), node]
    makes_all = not route.steps
    before = node if makes_all else route.steps[0].node
    made = sink.write(editor, scale, shift, before, sources if makes_all else sink.nodes)
    if made is None:
        return False
    return editor.replace(node.outputs[0], replay(editor, route, made, sources))


def _per_channel(
    route: Route, sink: Sink, operands: tuple[Float64, Float64]
) -> tuple[Float64, Float64] | None:
    """Both operands as [channels] of the sink; channels that the route leaves get 1 and 0."""
    labels: Labels | None = None
    if (route.steps and any(operand.size > 1 for operand in operands)) or _splits(route):
        labels = channel_labels(route, sink.axis)
        if labels is None:
            return None
    shape = static_shape(route.start) or ()
    found = []
    for operand, neutral in zip(operands, (1.0, 0.0), strict=True):
        if labels is not None:
            column = _by_label(operand, labels, sink.channels, neutral)
        else:
            column = along_axis(operand, shape, sink.axis)
        if column is None:
            return None
        found.append(column)
    return found[0], found[1]


def _splits(route: Route) -> bool:
    return any(step.node.op_type == "Split" for step in route.steps)


def _by_label(operand: Float64, labels: Labels, channels: int, neutral: float) -> Float64 | None:
    """The number that all elements with one label have, for each label."""
    column = np.full(channels, neutral)
    if operand.size == 1:
        column[labels.reshape(-1)] = operand.reshape(())
        return column
    whole = np.broadcast_to(operand, labels.shape)
    column[labels.reshape(-1)] = whole.reshape(-1)
    return column if bool((column[labels] == whole).all()) else None
