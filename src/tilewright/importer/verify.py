"""The invariants of the canonical form, checked after every pass."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from tilewright.errors import ModelError
from tilewright.importer.graphs import Array, array_of, is_constant, static_shape, subgraphs_of
from tilewright.importer.infer import schema_of

BROKEN = "TW-1190"
"""Code of an invariant that a pass has violated."""

# Operators whose result sizes depend on content; everything after them may lack static shapes.
DATA_DEPENDENT = frozenset(
    {
        "Compress",
        "ConcatFromSequence",
        "If",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "Optional",
        "OptionalGetElement",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
        "StringSplit",
        "Unique",
    }
)

# Their first operand already says how large the result is.
_SIZES_FIRST = frozenset({"ConstantOfShape", "Range"})

# In these an infinite operand is a broken weight; elsewhere (masks, bounds) it is meant.
_WEIGHTED = frozenset(
    {
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "GRU",
        "Gemm",
        "GroupNormalization",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "MatMul",
        "PRelu",
        "RMSNormalization",
        "RNN",
    }
)


def verify(model: ir.Model, after: str) -> None:
    """Check the canonical form's structure and the content of its constants.

    Args:
        model: the model in (or on its way to) canonical form.
        after: name of the pass that ran last, for the message.

    Raises:
        ModelError: the first invariant that does not hold.
    """
    verify_structure(model, after)
    seen: set[str] = set()
    for graph in model.graphs():
        for node in graph:
            if not node.name or node.name in seen:
                raise _broken(after, f"node name {node.name!r} is empty or used twice")
            seen.add(node.name)
    check_constants(model)


def verify_structure(model: ir.Model, after: str) -> None:
    """Unique value names, single assignment, order, opset, known types and static shapes."""
    opset = model.opset_imports.get("", 0)
    if opset < 21:
        raise _broken(after, f"the default domain is at opset {opset}, not 21")
    known: set[ir.Value] = set()
    names: set[str] = set()
    for value in [*model.graph.inputs, *model.graph.initializers.values()]:
        _declare(value, known, names, after)
    _verify_nodes(model.graph, known, names, opset, after, main=True)
    for value in model.graph.outputs:
        if value not in known:
            raise _broken(after, f"graph output {value.name!r} is computed by no node")


def _declare(value: ir.Value, known: set[ir.Value], names: set[str], after: str) -> None:
    if value in known or not value.name or value.name in names:
        raise _broken(after, f"value {value.name!r} is unnamed or defined twice")
    known.add(value)
    names.add(value.name)


def _verify_nodes(
    graph: ir.Graph, known: set[ir.Value], names: set[str], opset: int, after: str, *, main: bool
) -> None:
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in known:
                raise _broken(after, f"node {node.name!r} reads {value.name!r} before it is made")
        if node.domain == "":
            if node.op_type == "Constant":
                raise _broken(after, f"Constant node {node.name!r} is left")
            if schema_of(node.op_type, opset) is None:
                raise _broken(after, f"{node.op_type} ({node.name!r}) is not in opset {opset}")
        for subgraph in subgraphs_of(node):
            inner = set(known)
            for value in [*subgraph.inputs, *subgraph.initializers.values()]:
                _declare(value, inner, names, after)
            _verify_nodes(subgraph, inner, names, opset, after, main=False)
        for value in node.outputs:
            if value.name or value.uses() or value.is_graph_output():
                _declare(value, known, names, after)
                if main and not _typed(node, value):
                    raise _broken(
                        after,
                        f"{value.name!r} of {node.op_type} has no known type and static shape",
                    )


def _typed(node: ir.Node, value: ir.Value) -> bool:
    if value.type is not None and static_shape(value) is not None:
        return True
    if node.domain != "" or node.op_type in DATA_DEPENDENT:
        return True
    for index, read in enumerate(node.inputs):
        if read is None:
            continue
        if static_shape(read) is None:
            return True
        # Sizes, counts and axes are operands behind the data.
        if (index > 0 or node.op_type in _SIZES_FIRST) and not is_constant(read):
            return True
    return False


def check_constants(model: ir.Model) -> None:
    """No constant holds NaN, and no weight an infinity.

    Raises:
        ModelError: tensor name, first index and count.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            _check_constant(value)


def _check_constant(value: ir.Value) -> None:
    array = array_of(value)
    if array is None or value.dtype is None or not value.dtype.is_floating_point():
        return
    for offset, block in _blocks(array.reshape(-1)):
        if np.isfinite(block).all():
            continue
        weight = any(
            use.node.op_type in _WEIGHTED and use.idx > 0 and array.ndim > 0 for use in value.uses()
        )
        bad = ~np.isfinite(block) if weight else np.isnan(block)
        if bad.any():
            flat = array.reshape(-1)
            count = int(np.count_nonzero(~np.isfinite(flat) if weight else np.isnan(flat)))
            index = np.unravel_index(offset + int(np.argmax(bad)), array.shape)
            kind = "NaN" if np.isnan(block[int(np.argmax(bad))]) else "infinite"
            raise ModelError(
                f"weight {value.name!r} is {kind} at index {[int(i) for i in index]} "
                f"({count} of {array.size} numbers are not finite)",
                fix="export the model again from a checkpoint that is sound",
                code="TW-1107",
            )


def _blocks(flat: Array) -> Iterator[tuple[int, Array]]:
    """Pieces of 4 Mi elements, so that the masks of a large mapped tensor stay small."""
    size = 1 << 22
    for offset in range(0, flat.size, size):
        yield offset, flat[offset : offset + size]


def why_invalid(source: str | os.PathLike[str] | ir.Model) -> str | None:
    """What onnx's own checker finds wrong with a model; None when it finds nothing."""
    subject = ir.serde.serialize_model(source) if isinstance(source, ir.Model) else str(source)
    try:
        onnx.checker.check_model(subject, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error).strip().splitlines()[0].rstrip(": .")
    return None


def _broken(after: str, what: str) -> ModelError:
    return ModelError(
        f"the import pass {after!r} left an invalid graph: {what}",
        fix="please report this with the model",
        code=BROKEN,
    )
