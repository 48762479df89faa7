"""A QDQ model cut into stages that run one after the other over all samples.

A product whose bias is to be corrected begins a new stage: everything that its input depends on
runs, for every sample, before it.  What crosses from stage to stage are codes, the outputs of
QuantizeLinear; a DequantizeLinear belongs to whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from tilewright.ops.pattern import reads_of
from tilewright.quantize.patches import PatchRule
from tilewright.quantize.sessions import Array

DEQUANTIZE = "DequantizeLinear"


@dataclass(frozen=True)
class Tap:
    """A product whose mean patch is wanted.

    Args:
        node: name of its node.
        x: the value that it reads, an output of DequantizeLinear.
        rule: how the patch is computed.
    """

    node: str
    x: str
    rule: PatchRule


@dataclass(frozen=True)
class Stage:
    """Nodes that run together.

    Args:
        products: names of the tapped products that begin it.
        nodes: names, in order, DequantizeLinear excepted.
        inputs: tensors of earlier stages, or graph inputs.
        outputs: tensors that later stages read.
        taps: products of later stages whose input this stage makes.
        results: tensors of this stage that are wanted for themselves.
    """

    products: tuple[str, ...]
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    taps: tuple[Tap, ...]
    results: tuple[str, ...]


class StagedModel:
    """The stages of one QDQ model, and their sub-models.

    Args:
        results: names of tensors that are wanted besides the mean patches.
    """

    def __init__(self, model: ir.Model, taps: Sequence[Tap], results: Sequence[str] = ()) -> None:
        self._model = model
        self._results = tuple(results)
        self._taps = {tap.node: tap for tap in taps}
        self._proto = {n.name: ir.serde.serialize_node(n) for n in model.graph}
        self._nodes = {n.name or "": n for n in model.graph}
        self._values: dict[str, ir.Value] = {v.name or "": v for v in model.graph.inputs}
        for node in model.graph:
            self._values.update((v.name or "", v) for v in node.outputs)
        self._stage_of = self._number()
        self.stages = self._cut()

    def _number(self) -> dict[ir.Value, int]:
        """Stage of every computed value: the number of tapped products on the way to it."""
        stage: dict[ir.Value, int] = dict.fromkeys(self._model.graph.inputs, 0)
        for node in self._model.graph:
            reached = max((stage[v] for v in self._reads(node)), default=0)
            at = reached + (node.name in self._taps)
            stage.update(dict.fromkeys(node.outputs, at))
        return stage

    @staticmethod
    def _reads(node: ir.Node) -> list[ir.Value]:
        """Computed values that a node reads, those of its subgraphs too."""
        return [v for v in reads_of(node) if v.const_value is None]

    def _roots(self, node: ir.Node) -> list[ir.Value]:
        """What a node reads, seen through DequantizeLinear."""
        return [_root(v) for v in self._reads(node) if _root(v).const_value is None]

    def _cut(self) -> list[Stage]:
        needed = self._needed()
        running = [n for n in self._model.graph if n.op_type != DEQUANTIZE and n in needed]
        by_stage: dict[int, list[ir.Node]] = {}
        for node in running:
            by_stage.setdefault(self._stage_of[node.outputs[0]], []).append(node)
        last_read = self._last_reads(running)
        pending: dict[int, list[Tap]] = {}
        for tap in self._taps.values():
            root = _root(self._values[tap.x])
            pending.setdefault(self._stage_of[root], []).append(tap)
        stages = []
        for number in sorted({0, *by_stage, *pending}):
            nodes = by_stage.get(number, [])
            made = {v for n in nodes for v in n.outputs}
            reads = [v for n in nodes for v in self._roots(n) if v not in made]
            taps = pending.get(number, [])
            reads += [r for t in taps if (r := _root(self._values[t.x])) not in made]
            outputs = [v for n in nodes for v in n.outputs if last_read.get(v, -1) > number]
            stages.append(
                Stage(
                    tuple(n.name or "" for n in nodes if n.name in self._taps),
                    tuple(n.name or "" for n in nodes),
                    tuple(dict.fromkeys(v.name or "" for v in reads)),
                    tuple(v.name or "" for v in outputs),
                    tuple(taps),
                    tuple(n for n in self._results if self._values[n] in made),
                )
            )
        return stages

    def _needed(self) -> set[ir.Node]:
        """Nodes that some tapped product's input or some result depends on."""
        found: set[ir.Node] = set()
        open_values = [_root(self._values[tap.x]) for tap in self._taps.values()]
        open_values += [self._values[name] for name in self._results]
        while open_values:
            node = open_values.pop().producer()
            if node is not None and node not in found:
                found.add(node)
                open_values += self._roots(node)
        return found

    def _last_reads(self, running: Sequence[ir.Node]) -> dict[ir.Value, int]:
        """Value -> the last stage that reads it."""
        last: dict[ir.Value, int] = {}
        for node in running:
            at = self._stage_of[node.outputs[0]]
            for value in self._roots(node):
                last[value] = max(last.get(value, -1), at)
        return last

    def bytes_per_sample(self) -> int:
        """The most that one sample holds between two stages."""
        most = 0
        for i in range(len(self.stages)):
            later = {name for s in self.stages[i + 1 :] for name in s.inputs}
            made = [n for s in self.stages[: i + 1] for n in s.outputs if n in later]
            most = max(most, sum(_bytes(self._values[n]) for n in made))
        return most

    def sub_model(self, stage: Stage, replaced: Mapping[str, Array]) -> bytes:
        """One stage as a model; the mean patch of a tap is an output named after its node.

        Args:
            replaced: initializer name -> new content.
        """
        nodes: dict[str, onnx.NodeProto] = {}
        constants: dict[str, onnx.TensorProto] = {}
        for name in stage.nodes:
            for value in reads_of(self._nodes[name]):
                self._pull(value, nodes, constants, replaced)
            nodes[name] = self._proto[name]
        outputs = [helper.make_empty_tensor_value_info(name) for name in stage.outputs]
        outputs += [helper.make_empty_tensor_value_info(name) for name in stage.results]
        extra: list[onnx.NodeProto] = []
        for tap in stage.taps:
            self._pull(self._values[tap.x], nodes, constants, replaced)
            extra += _patch_nodes(tap, constants, self._values[tap.x])
            outputs.append(helper.make_empty_tensor_value_info(f"patch:{tap.node}"))
        inputs = [_info(self._values[name]) for name in stage.inputs]
        graph = helper.make_graph([], "stage", inputs, outputs, list(constants.values()))
        graph.node.extend([*nodes.values(), *extra])
        opsets = [helper.make_opsetid(d, v) for d, v in self._model.opset_imports.items()]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return bytes(proto.SerializeToString())

    def _pull(
        self,
        value: ir.Value,
        nodes: dict[str, onnx.NodeProto],
        constants: dict[str, onnx.TensorProto],
        replaced: Mapping[str, Array],
    ) -> None:
        """Add the DequantizeLinear or the initializer that makes `value`."""
        name, producer = value.name or "", value.producer()
        if value.const_value is not None and producer is None:
            if name in replaced:
                constants[name] = numpy_helper.from_array(replaced[name], name)
            elif name not in constants:
                constants[name] = ir.serde.serialize_tensor(value.const_value)
                constants[name].name = name
        elif producer is not None and producer.op_type == DEQUANTIZE:
            for operand in reads_of(producer):
                self._pull(operand, nodes, constants, replaced)
            nodes[producer.name or ""] = self._proto[producer.name]


def _root(value: ir.Value) -> ir.Value:
    producer = value.producer()
    if producer is None or producer.op_type != DEQUANTIZE:
        return value
    source = producer.inputs[0]
    assert source is not None
    return source


def _bytes(value: ir.Value) -> int:
    assert value.shape is not None and value.dtype is not None
    count = int(np.prod([d if isinstance(d, int) else 1 for d in value.shape.dims]))
    return int(count * value.dtype.itemsize)


def _info(value: ir.Value) -> onnx.ValueInfoProto:
    shape = (
        None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    )
    assert value.dtype is not None
    return helper.make_tensor_value_info(value.name or "", int(value.dtype), shape)


def _patch_nodes(
    tap: Tap, constants: dict[str, onnx.TensorProto], x: ir.Value
) -> list[onnx.NodeProto]:
    """Nodes that compute the mean patch of one tap, [1, C], [N, C, k] or [N, C, kh, kw]."""
    output = f"patch:{tap.node}"
    rank = 0 if x.shape is None else len(x.shape)
    if not tap.rule.matrices:
        if rank == 4 and tap.rule.axis == 1:
            return [helper.make_node("GlobalAveragePool", [tap.x], [output])]
        axes = np.array([a for a in range(rank) if a != tap.rule.axis], np.int64)
        constants[f"{output}:axes"] = numpy_helper.from_array(axes, f"{output}:axes")
        return [helper.make_node("ReduceMean", [tap.x, f"{output}:axes"], [output], keepdims=0)]
    names = [f"{output}:matrix{i}" for i in range(len(tap.rule.matrices))]
    for name, matrix in zip(names, tap.rule.matrices, strict=True):
        constants[name] = numpy_helper.from_array(matrix, name)
    if len(names) == 1:
        return [helper.make_node("MatMul", [tap.x, names[0]], [output])]
    return [
        helper.make_node("MatMul", [tap.x, names[1]], [f"{output}:columns"]),
        helper.make_node("MatMul", [names[0], f"{output}:columns"], [output]),
    ]
