"""PyTorch's spelling of group normalisation becomes one node.

    Reshape(InstanceNormalization(Reshape(x, [N, G, ..]); 1, 0), [N, C, ..])
        = GroupNormalization(Reshape(x, [N, C, ..]); 1, 0, num_groups = G)

where each group holds whole channels.  With a group per channel it is InstanceNormalization.  A
factor and a shift behind are absorbed by affine_after.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tilewright.importer.edit import Attribute, Editor, NearMiss, PassResult
from tilewright.importer.graphs import (
    data_input,
    float_array,
    float_attribute,
    input_at,
    producer_of,
    sole_consumer,
    static_shape,
)

NAME = "group_norm"


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        if node.graph is None or node.domain != "" or node.op_type != "InstanceNormalization":
            continue
        before, after = producer_of(node.inputs[0], "Reshape"), sole_consumer(node.outputs[0])
        if before is None or after is None or after.op_type != "Reshape":
            continue
        reason = _obstacle(node, after)
        if reason is None:
            changes += _write(editor, before, node, after)
        else:
            misses.append(NearMiss.at(node, NAME, reason))
    return PassResult(NAME, changes, tuple(misses))


def _obstacle(node: ir.Node, after: ir.Node) -> str | None:
    grouped, restored = static_shape(node.inputs[0]), static_shape(after.outputs[0])
    if grouped is None or restored is None or len(grouped) < 3:
        return "its shape is not known"
    if len(restored) < 3 or grouped[0] != restored[0] or restored[1] % grouped[1]:
        return f"its groups of shape {list(grouped)} do not hold whole channels of {list(restored)}"
    scale, bias = float_array(input_at(node, 1)), float_array(input_at(node, 2))
    if scale is None or bias is None:
        return "its scale or bias is computed"
    if (scale != scale[0]).any() or (bias != bias[0]).any():
        return "its scale or bias differs from group to group"
    return None


def _write(editor: Editor, before: ir.Node, node: ir.Node, after: ir.Node) -> bool:
    data, dtype = data_input(before), data_input(before).dtype
    grouped, restored = static_shape(node.inputs[0]), static_shape(after.outputs[0])
    assert grouped is not None and restored is not None and dtype is not None
    sources = (before, node, after)
    if static_shape(data) != restored:
        operands = [data, data_input(after, 1)]
        data = editor.emit("Reshape", operands, before=after, sources=(before,))[0]
    channels, groups = restored[1], grouped[1]
    operands = [data]
    for index, role in ((1, "scale"), (2, "bias")):
        content = float_array(input_at(node, index))
        assert content is not None
        full = np.full(channels, content[0], dtype.numpy())
        operands.append(editor.constant(full, f"{node.name}_{role}"))
    attributes: dict[str, Attribute] = {"epsilon": float_attribute(node, "epsilon", 1e-5)}
    if groups != channels:
        attributes["num_groups"] = groups
    result = editor.emit(
        "InstanceNormalization" if groups == channels else "GroupNormalization",
        operands,
        attributes,
        before=after,
        sources=sources,
    )[0]
    return editor.replace(after.outputs[0], result)
