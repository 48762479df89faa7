"""The reference executor: each operator's plain formula, one after another."""

from __future__ import annotations

from tilewright.borders import Array, dequantize_outputs, quantize_inputs
from tilewright.graph import Graph


def execute_codes(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array]:
    """Codes of every tensor of the graph.

    Args:
        inputs: codes of the input tensors, by tensor name.
    """
    values = dict(inputs)
    for node in graph.nodes:
        types, out = graph.types(node.inputs), graph.types(node.outputs)
        results = node.op.reference([values[n] for n in node.inputs], types, out)
        values.update(zip(node.outputs, results, strict=True))
    return values


def execute(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Float outputs by ONNX name from float inputs by ONNX name."""
    return dequantize_outputs(graph, execute_codes(graph, quantize_inputs(graph, feeds)))
