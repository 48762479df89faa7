"""A Pad of the spatial axes with a constant moves into the node after it, where that is exact.

    Conv(Pad(x, p, 0); q)        = Conv(x; p + q)
    AveragePool(Pad(x, p, 0); q) = AveragePool(x; p + q, count_include_pad = 1)   q = 0 or counted
    MaxPool(Pad(x, p, v); q)     = MaxPool(x; p + q)        v lowest, or v = 0 and x >= 0

Pools only without ceil_mode and with padding smaller than the kernel. MaxPool pads with nothing, so
zeros may move only where no value is below them, and each window must hold a value. Only when the
pool alone reads the Pad.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor, PassResult
from tilewright.importer.graphs import (
    array_of,
    input_at,
    int_attribute,
    ints_attribute,
    producer_of,
    scalar_of,
    sole_consumer,
    string_attribute,
)
from tilewright.importer.passes.clamp import clamp_of

NAME = "pad"

_NOT_NEGATIVE = frozenset({"Sigmoid", "HardSigmoid", "Softmax", "Relu", "Exp", "Softplus", "Abs"})


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    for node in list(model.graph):
        if node.graph is not None and node.op_type in ("Conv", "AveragePool", "MaxPool"):
            changes += _fold(editor, node)
    return PassResult(NAME, changes)


def _fold(editor: Editor, node: ir.Node) -> bool:
    pad = producer_of(node.inputs[0], "Pad")
    own = ints_attribute(node, "pads")
    if pad is None or own is None or sole_consumer(pad.outputs[0]) is not node:
        return False
    added = _spatial(pad)
    if added is None or len(added) != len(own) or len(node.outputs) != 1:
        return False
    total = [first + second for first, second in zip(added, own, strict=True)]
    changed = _exact(node, pad, own, total)
    if changed is None:
        return False
    attributes: dict[str, Attribute] = {
        name: attribute.value for name, attribute in node.attributes.items()
    }
    attributes |= {**changed, "pads": total}
    result = editor.emit(
        node.op_type,
        [pad.inputs[0], *node.inputs[1:]],
        attributes,
        before=node,
        sources=(pad, node),
    )[0]
    return editor.replace(node.outputs[0], result)


def _spatial(pad: ir.Node) -> list[int] | None:
    """Begins and ends of the spatial axes, when nothing else is padded and nothing is cropped."""
    pads = array_of(pad.inputs[1])
    if pads is None or string_attribute(pad, "mode", "constant") != "constant":
        return None
    rank = pads.size // 2
    begins, ends = [int(n) for n in pads[:rank]], [int(n) for n in pads[rank:]]
    if any(begins[:2]) or any(ends[:2]) or min(begins + ends) < 0:
        return None
    return begins[2:] + ends[2:]


def _exact(
    node: ir.Node, pad: ir.Node, own: Sequence[int], total: Sequence[int]
) -> dict[str, Attribute] | None:
    """Attributes to change besides pads, or None where the identity does not hold."""
    value = scalar_of(input_at(pad, 2))
    if value is None:
        return None
    if node.op_type == "Conv":
        return {} if value == 0.0 else None
    kernel, dilations = ints_attribute(node, "kernel_shape"), ints_attribute(node, "dilations")
    if (
        kernel is None
        or int_attribute(node, "ceil_mode", 0)
        or any(d != 1 for d in dilations or ())
    ):
        return None
    if any(padding >= size for padding, size in zip(total, [*kernel, *kernel], strict=True)):
        return None
    if node.op_type == "AveragePool":
        counted = int_attribute(node, "count_include_pad", 0) == 1 or not any(own)
        return {"count_include_pad": 1} if value == 0.0 and counted else None
    data = pad.inputs[0]
    lowest = value <= float(np.finfo(np.float32).min)
    return {} if lowest or (value == 0.0 and _is_not_negative(data)) else None


def _is_not_negative(value: ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    if node is None or node.domain != "":
        return False
    clamp = clamp_of(node)
    if clamp is not None:
        return clamp.low >= 0.0
    if node.op_type in ("MaxPool", "AveragePool", "Concat", "Reshape", "Transpose"):
        operands = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        return all(_is_not_negative(operand) for operand in operands)
    return node.op_type in _NOT_NEGATIVE
