"""A scalar factor behind a product of two computed tensors moves into a projection before it.

    MatMul(q, k) * c = MatMul(q * c, k)        with c in the weights and bias that make q, or k

when the operand comes from a product by constants or a normalisation through movement only
(affine_after does the same for a factor on q or k themselves).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.affine import Float64
from tilewright.importer.edit import Editor, NearMiss, PassResult
from tilewright.importer.graphs import (
    data_input,
    is_constant,
    producer_of,
    scalar_of,
    sole_consumer,
)
from tilewright.importer.movement import Route, channel_labels, replay, route_to
from tilewright.importer.sinks import Sink, sink_of

NAME = "attention_scale"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        if node.graph is None or node.domain != "" or node.op_type != "Mul":
            continue
        factor, product = scalar_of(node.inputs[1]), producer_of(node.inputs[0], "MatMul")
        if factor is None or product is None or any(is_constant(v) for v in product.inputs):
            continue
        if sole_consumer(product.outputs[0]) is not node:
            reason = f"{product.outputs[0].name} before the factor is read elsewhere too"
            misses.append(NearMiss.at(node, NAME, reason))
        elif any(_fold(editor, node, product, factor, position) for position in (0, 1)):
            changes += 1
        else:
            misses.append(NearMiss.at(node, NAME, _reason(product, factor)))
    return PassResult(NAME, changes, tuple(misses))


def _fold(editor: Editor, node: ir.Node, product: ir.Node, factor: float, position: int) -> bool:
    route = route_to(data_input(product, position), product)
    sink = sink_of(route.start) if route is not None else None
    if route is None or sink is None:
        return False
    scale = _on_the_route(route, sink, factor)
    if scale is None:
        return False
    before = route.steps[0].node if route.steps else product
    made = sink.write(editor, scale, np.zeros(sink.channels), before, sink.nodes)
    if made is None:
        return False
    operands = [data_input(product, 0), data_input(product, 1)]
    operands[position] = replay(editor, route, made, [step.node for step in route.steps[-1:]])
    result = editor.emit("MatMul", operands, before=node, sources=(product, node))[0]
    return editor.replace(node.outputs[0], result)


def _on_the_route(route: Route, sink: Sink, factor: float) -> Float64 | None:
    """The factor for each channel whose elements arrive, 1 for the others."""
    if all(step.node.op_type != "Split" for step in route.steps):
        return np.full(sink.channels, factor)
    labels = channel_labels(route, sink.axis)
    if labels is None:
        return None
    scale = np.ones(sink.channels)
    scale[labels.reshape(-1)] = factor
    return scale


def _reason(product: ir.Node, factor: float) -> str:
    names = " and ".join(str(value.name) for value in product.inputs if value is not None)
    return (
        f"the factor {factor:g} stays behind the product: neither of {names} comes from a layer "
        "with constant weights through reshapes, transposes and splits alone"
    )
