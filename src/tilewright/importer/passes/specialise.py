"""One walk in topological order: canonical operator forms, constant folding, static shapes.

    node(constants) = constant      Shape(x) = its static shape      If(true) = its then-branch
    Attention(..) = its definition in ONNX, and so for other operators that opset 21 lacks

Each node is first brought to its opset 21 form (importer/forms), then evaluated if all its inputs
are constant, else its outputs' types and shapes are inferred from inputs that are final already, so
that one walk settles any chain of shape arithmetic. Declared shapes of inner values are not
believed; they serve only where inference has no answer (operators of foreign domains, loops).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tilewright.errors import ModelError
from tilewright.importer.bodies import body_of, has_body
from tilewright.importer.edit import SOURCE_KEY, Editor, PassResult, joined_sources
from tilewright.importer.evaluate import evaluate, foreign_output_types
from tilewright.importer.forms import FORMS
from tilewright.importer.forms.site import Site
from tilewright.importer.graphs import Array, array_of, static_shape, subgraphs_of
from tilewright.importer.infer import OutputType, output_types, schema_of
from tilewright.importer.passes import constants

NAME = "specialise"

CANONICAL_OPSET = 21

Declared = dict[ir.Value, OutputType]


def run(model: ir.Model) -> PassResult:
    source = model.opset_imports.get("", CANONICAL_OPSET)
    target = _target_opset(model, source)
    changes = _Walk(model, source, target).graph(model.graph)
    for graph in model.graphs():
        graph.opset_imports[""] = target
    return PassResult(NAME, changes + (source != target))


def _target_opset(model: ir.Model, source: int) -> int:
    """Opset 21, or the oldest later one that every operator of the model exists in."""
    needed = CANONICAL_OPSET
    for graph in model.graphs():
        for node in graph:
            if node.domain != "" or node.op_type in FORMS:
                continue
            if has_body(node, source, CANONICAL_OPSET):
                continue
            schema = schema_of(node.op_type, source)
            if schema is None or schema.since_version <= CANONICAL_OPSET:
                continue
            old = schema_of(node.op_type, CANONICAL_OPSET)
            if old is None or not set(node.attributes) <= set(old.attributes):
                needed = max(needed, schema.since_version)
    return needed


class _Walk:
    def __init__(self, model: ir.Model, source: int, target: int) -> None:
        self.model = model
        self.source = source
        self.target = target

    def graph(self, graph: ir.Graph) -> int:
        editor = Editor(self.model, graph, self.target)
        declared: Declared = {
            value: (value.type, value.shape) for node in graph for value in node.outputs
        }
        for value in declared:
            value.type, value.shape = None, None
        changes = 0
        pending = list(graph)[::-1]
        while pending:
            node = pending.pop()
            if node.graph is not graph:
                continue
            branch = _taken_branch(node)
            if branch is not None:
                pending.extend(_inline(editor, node, branch)[::-1])
                changes += 1
                continue
            body = self.body(node)
            if body is not None:
                pending.extend(_splice(editor, node, body)[::-1])
                changes += 1
                continue
            for subgraph in subgraphs_of(node):
                changes += self.graph(subgraph)
            changes += self.node(editor, node, declared)
        return changes

    def body(self, node: ir.Node) -> ir.Graph | None:
        if node.op_type in FORMS or not has_body(node, self.source, CANONICAL_OPSET):
            return None
        body = body_of(node, self.source)
        if body is None:
            raise ModelError(
                f"node {node.name!r}: ONNX defines {node.op_type} by operators of opset "
                f"{CANONICAL_OPSET} for other operands than these",
                fix="export the model in an older opset",
                code="TW-1160",
            )
        return body

    def node(self, editor: Editor, node: ir.Node, declared: Declared) -> int:
        """Settle one node whose inputs are settled; 1 when it was rewritten or folded."""
        form = FORMS.get(node.op_type) if node.domain == "" else None
        if form is not None:
            replacement = form(Site(node, self.source, editor))
            if replacement is not None:
                _substitute(editor, node, list(replacement))
                return 1
        self.infer(node, declared)
        arrays = _known_shape(node) or evaluate(node, self.target)
        if arrays is None:
            return 0
        name = node.name or node.op_type
        _substitute(editor, node, [editor.constant(array, f"{name}_folded") for array in arrays])
        return 1

    def infer(self, node: ir.Node, declared: Declared) -> None:
        inferred: Sequence[OutputType] | None
        if node.domain != "":
            inferred = foreign_output_types(node, self.target)
        elif node.op_type == "If":
            inferred = _branch_types(node)
        elif node.op_type == "Loop":
            inferred = _loop_types(node)
        else:
            inferred = output_types(node, self.target)
        for index, value in enumerate(node.outputs):
            type_, shape = inferred[index] if inferred else (None, None)
            declared_type, declared_shape = declared.get(value, (None, None))
            value.type = type_ or declared_type
            value.shape = shape
            if static_shape(value) is None and declared_shape is not None:
                value.shape = shape if _contradict(shape, declared_shape) else declared_shape


def _substitute(editor: Editor, node: ir.Node, values: list[ir.Value]) -> None:
    for old, new in zip(node.outputs, values, strict=False):
        if not old.uses() and not old.is_graph_output():
            continue
        if not editor.replace(old, new):
            alias = editor.emit("Identity", [new], before=node, sources=(node,))[0]
            editor.replace(old, alias)
    editor.discard(node)


def _known_shape(node: ir.Node) -> list[Array] | None:
    """Shape and Size of a tensor whose shape is static, whatever its content."""
    if node.domain != "" or node.op_type not in ("Shape", "Size"):
        return None
    shape = static_shape(node.inputs[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return [np.asarray(int(np.prod(shape)), np.int64)]
    start = node.attributes["start"].as_int() if "start" in node.attributes else 0
    end = node.attributes["end"].as_int() if "end" in node.attributes else len(shape)
    return [np.asarray(shape[start:end], np.int64)]


def _contradict(inferred: ir.Shape | None, declared: ir.Shape) -> bool:
    if inferred is None:
        return False
    if inferred.rank() != declared.rank():
        return True
    pairs = zip(inferred.dims, declared.dims, strict=True)
    return any(isinstance(known, int) and known != dim for known, dim in pairs)


def _taken_branch(node: ir.Node) -> ir.Graph | None:
    """The branch of an If with a constant condition."""
    if node.domain != "" or node.op_type != "If":
        return None
    condition = array_of(node.inputs[0])
    if condition is None:
        return None
    taken = "then_branch" if bool(condition.reshape(())) else "else_branch"
    return node.attributes[taken].as_graph()


def _inline(editor: Editor, node: ir.Node, branch: ir.Graph) -> list[ir.Node]:
    """Move the branch's nodes and constants in front of the If and let them stand for it."""
    for value in list(branch.initializers.values()):
        branch.initializers.pop(value.name or "")
        value.name = _free_initializer_name(editor, value)
        editor.graph.register_initializer(value)
    nodes = list(branch)
    results = list(branch.outputs)
    branch.outputs.clear()
    branch.remove(nodes)
    editor.graph.insert_before(node, nodes)
    for old, new in zip(node.outputs, results, strict=True):
        if not editor.replace(old, new):
            alias = editor.emit("Identity", [new], before=node, sources=(node,))[0]
            editor.replace(old, alias)
    editor.discard(node)
    return nodes


def _splice(editor: Editor, node: ir.Node, body: ir.Graph) -> list[ir.Node]:
    """Move the definition's nodes and constants in front of the node and let them stand for it."""
    constants.convert(body)
    actual = {value.name: value for value in node.inputs if value is not None}
    for value in body.inputs:
        value.replace_all_uses_with(actual[value.name])
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        value.name = editor.unique(f"{node.name}_{value.name}")
        editor.graph.register_initializer(value)
    nodes, results = list(body), list(body.outputs)
    body.outputs.clear()
    body.remove(nodes)
    for inner in nodes:
        inner.name = f"{node.name}_{inner.op_type}"
        inner.metadata_props[SOURCE_KEY] = joined_sources((node,))
        for value in inner.outputs:
            value.type, value.shape = None, None
            value.name = editor.unique(f"{node.name}_{value.name}")
    editor.graph.insert_before(node, nodes)
    for old, new in zip([v for v in node.outputs if v.name], results, strict=True):
        editor.replace(old, new)
    editor.discard(node)
    return nodes


def _free_initializer_name(editor: Editor, value: ir.Value) -> str:
    name = value.name or "constant"
    return editor.unique(name) if name in editor.graph.initializers else name


def _branch_types(node: ir.Node) -> list[OutputType]:
    """Types of an If that stays: those on which both branches agree."""
    branches = list(subgraphs_of(node))
    if len(branches) != 2:
        raise ModelError(f"node {node.name!r} (If) needs two branches", code="TW-1111")
    types = []
    for first, second in zip(branches[0].outputs, branches[1].outputs, strict=True):
        same = static_shape(first) == static_shape(second)
        types.append((first.type or second.type, first.shape if same else None))
    return types


def _loop_types(node: ir.Node) -> list[OutputType]:
    """Types of a Loop: carried values whose shape the body keeps, then scans of unknown length."""
    (body,) = subgraphs_of(node)
    carried = len(node.inputs) - 2
    types: list[OutputType] = []
    for position, value in enumerate(body.outputs[1:]):
        if position < carried:
            same = static_shape(value) == static_shape(node.inputs[2 + position])
            types.append((value.type, value.shape if same else None))
        else:
            dims = None if value.shape is None else ir.Shape([None, *value.shape.dims])
            types.append((value.type, dims))
    return types
