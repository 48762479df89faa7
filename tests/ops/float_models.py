"""Small float models, quantized by hand: one FloatGraph with encodings and weight codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import node_harness
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from tilewright import graph as graphs
from tilewright import numerics
from tilewright.graph import DType, Encoding, Graph
from tilewright.ops import catalog
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Note, QuantizedConstant, Refusal, Site
from tilewright.quantize.sites import match_sites

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g '


def parse(text: str, **constants: Any) -> onnx.ModelProto:
    """A model from onnx's text form; `constants` become float32 initializers (None is left out)."""
    model = onnx.parser.parse_model(HEADER + text)
    for name, value in constants.items():
        if value is not None:
            array = np.asarray(value)
            array = array if array.dtype.kind == "i" else array.astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    for i, node in enumerate(model.graph.node):
        node.name = f"{node.op_type.lower()}{i}"
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


@dataclass(frozen=True)
class Weights:
    """How weights are quantized."""

    dtype: DType = DType.S8
    per_channel: bool = True
    zero_point: int = 0

    def quantize(self, array: Any, axis: int) -> QuantizedConstant:
        lo, hi = (-127, 127) if self.dtype is DType.S8 else self.dtype.range
        room = min(hi - self.zero_point, self.zero_point - lo)
        others = tuple(a for a in range(array.ndim) if a != axis)
        top = np.abs(array).max(axis=others) if self.per_channel else np.abs(array).max()[None]
        scale = np.maximum(top / room, 1e-6).astype(np.float32)
        shape = [1] * array.ndim
        shape[axis if self.per_channel else 0] = -1
        codes = np.rint(array / scale.reshape(shape)) + self.zero_point
        return QuantizedConstant(
            np.clip(codes, lo, hi).astype(self.dtype.numpy),
            self.dtype,
            scale,
            np.full(scale.shape, self.zero_point, np.int64),
            axis if self.per_channel else None,
        )


def sites_of(graph: ir.Graph, encodings: Mapping[str, Encoding] | None) -> list[Site]:
    """What the catalog makes of every node, in order; a Refusal is an error."""
    found = match_sites(FloatGraph(graph, encodings))
    assert not found.cpu, found.cpu
    return list(found.sites)


def refusal(text: str, **constants: Any) -> str:
    """Why the catalog refuses the model's first node."""
    graph = ir.from_proto(parse(text, **constants)).graph
    found = catalog.match(graph[0], FloatGraph(graph))
    assert isinstance(found, Refusal), found
    return found.reason


def encoding_of(values: Any, dtype: DType) -> Encoding:
    if dtype is DType.S16:
        return Encoding(dtype, numerics.symmetric_scale(float(np.abs(values).max()), 32767), 0)
    low, high = float(values.min()), float(values.max())
    return Encoding(dtype, *numerics.affine_parameters(low, high, *dtype.range))


@dataclass
class Lowered:
    """A lowered model with the codes and reals of one sample."""

    graph: Graph
    sites: list[Site]
    feeds: dict[str, Any]
    reals: dict[str, Any]
    encodings: dict[str, Encoding] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @property
    def operators(self) -> list[type]:
        return [type(n.op) for n in self.graph.nodes]

    def check(self, steps: float = 0.51, tiles: bool = True, seed: int = 0) -> Lowered:
        """Outputs within `steps` of the clamped float result; every node the same in tiles."""
        got = node_harness.run(self.graph, self.feeds)
        for border in self.graph.outputs:
            t = self.graph.tensors[border.tensor]
            ideal = self.reals[border.name].astype(np.float64) / t.scale + t.zero_point
            distance = np.abs(got[border.name] - np.clip(ideal, *t.dtype.range)).max()
            assert distance <= steps, distance
        if tiles:
            rng = np.random.default_rng(seed)
            node_harness.check_graph_tiles(self.graph, self.feeds, rng)
        return self


def lower(
    model: onnx.ModelProto,
    types: Mapping[str, DType | Encoding],
    weights: Weights | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    biases: Mapping[str, QuantizedConstant] | None = None,
) -> Lowered:
    """Quantize and lower a model; scales come from the float result of one sample.

    Args:
        types: value name -> type (its range is that of the sample) or encoding; values without
            one hide in fused operators.
        inputs: float samples; standard normal ones when omitted.
        biases: biases that the model holds as codes.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    rng = np.random.default_rng(seed)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    given = inputs or {}
    samples = {
        name: np.asarray(given[name] if name in given else rng.normal(0, 1, shape), np.float32)
        for name, shape in shapes.items()
    }
    encodings: dict[str, Encoding] = {}
    for name, array in samples.items():
        wanted = types[name]
        encodings[name] = wanted if isinstance(wanted, Encoding) else encoding_of(array, wanted)
    codes = {n: _codes(a, encodings[n]) for n, a in samples.items()}
    back = {n: numerics.dequantize(c, *encodings[n][1:]) for n, c in codes.items()}

    constants = {**_quantized_weights(model, weights or Weights()), **(biases or {})}
    reals = _run_all(model, back, types)
    for name, wanted in types.items():
        if name not in encodings:
            encodings[name] = (
                wanted if isinstance(wanted, Encoding) else encoding_of(reals[name], wanted)
            )
    graph = ir.from_proto(model).graph
    builder = Builder(FloatGraph(graph, encodings, constants))
    borders = [builder.add_input(v) for v in graph.inputs]
    sites = sites_of(graph, encodings)
    for site in sites:
        builder.begin(site)
        catalog.bind(site, builder)
    made = builder.graph("g", borders, [builder.output(v) for v in graph.outputs])
    graphs.verify(made)
    return Lowered(made, sites, codes, reals, encodings, builder.notes)


def _codes(array: Any, encoding: Encoding) -> Any:
    codes = numerics.quantize(array, encoding.scale, encoding.zero_point, *encoding.dtype.range)
    return codes.astype(encoding.dtype.numpy)


def _quantized_weights(model: onnx.ModelProto, weights: Weights) -> dict[str, QuantizedConstant]:
    """Codes of every product's weights; the model gets their dequantized values."""
    constants = {}
    graph = ir.from_proto(model).graph
    arrays = {i.name: i for i in model.graph.initializer}
    for site in sites_of(graph, None):
        if site.weights is not None:
            name = site.weights.value.name or ""
            found = weights.quantize(numpy_helper.to_array(arrays[name]), site.weights.axis)
            constants[name] = found
            arrays[name].CopyFrom(numpy_helper.from_array(found.real(), name))
    return constants


def _run_all(
    model: onnx.ModelProto, feeds: Mapping[str, Any], names: Mapping[str, Any]
) -> dict[str, Any]:
    wider = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in wider.graph.output} | set(feeds)
    wider.graph.output.extend(
        helper.make_empty_tensor_value_info(n) for n in names if n not in known
    )
    return node_harness.onnxruntime_run(wider, feeds)
