"""Cross-layer equalisation: weights of neighbouring convolutions get channels of like range.

Between two convolutions with nothing but clamps between them, channel i may be divided by any s > 0
in the first and multiplied by it in the second.  With r1, r2 the largest |weight| of the channel in
both, s = sqrt(r1 / r2) makes them equal (Nagel et al. 2019, "Data-Free Quantization Through Weight
Equalization and Bias Correction", eq. 11).  A clamp moves with its channel: Clip(0, 6) becomes Relu
and Min with a bound per channel, without which a net with ReLU6 loses more than it gains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.ops.activation import Activation
from tilewright.ops.pattern import FloatGraph, Site, attribute_int, shape_of
from tilewright.quantize.algorithms.base import Changed
from tilewright.quantize.sites import Partition, find_sites

FloatArray = npt.NDArray[np.float64]

SWEEPS = 40
SETTLED = 1e-3
"""Sweeps end when no factor differs from one by more."""

LARGEST_FACTOR = 2.0**10


class Equalization:
    NAME: ClassVar[str] = "equalization"

    def apply(self, model: ir.Model) -> Changed:
        copy = model.clone()
        graph = FloatGraph(copy.graph)
        partition = find_sites(graph)
        pairs = _pairs(partition, graph)
        layers = {id(layer.site): layer for pair in pairs for layer in pair}
        for _ in range(SWEEPS):
            factors = [_equalize(layers[id(a.site)], layers[id(b.site)]) for a, b in pairs]
            if all(np.abs(f - 1).max() < SETTLED for f in factors):
                break
        for layer in layers.values():
            _store(layer, copy.graph)
        note = f"equalised the weights of {len(pairs)} pairs of neighbouring convolutions"
        return Changed(copy, (note,) if pairs else ())


@dataclass
class _Layer:
    """A convolution being scaled; `scale` is what its output channels were divided by."""

    site: Site
    node: ir.Node
    weight: FloatArray
    bias: FloatArray
    scale: FloatArray


def _pairs(partition: Partition, graph: FloatGraph) -> list[tuple[_Layer, _Layer]]:
    layers: dict[int, _Layer] = {}

    def layer(site: Site) -> _Layer:
        if id(site) not in layers:
            layers[id(site)] = _layer(site, graph)
        return layers[id(site)]

    found = []
    for second in partition.sites:
        first = partition.made_by(second.inputs[0]) if second.inputs else None
        if first is None or not (_scalable(first) and _scalable(second)):
            continue
        value = first.outputs[0]
        activation: Activation = first.pattern.activation
        if activation.unary is None and graph.sole_consumer(value) is not None:
            found.append((layer(first), layer(second)))
    return found


def _scalable(site: Site) -> bool:
    """A Conv whose constants no other node reads."""
    if site.kind != "Conv" or site.weights is None:
        return False
    constants = [v for v in (site.weights.value, site.weights.bias) if v is not None]
    return all(len(v.uses()) == 1 for v in constants)


def _layer(site: Site, graph: FloatGraph) -> _Layer:
    assert site.weights is not None
    weight = graph.constant(site.weights.value)
    assert weight is not None
    bias = graph.constant(site.weights.bias)
    channels = len(weight)
    return _Layer(
        site,
        site.nodes[0],
        weight.astype(np.float64),
        np.zeros(channels) if bias is None else bias.astype(np.float64),
        np.ones(channels),
    )


def _equalize(first: _Layer, second: _Layer) -> FloatArray:
    """One step on a pair; returns the factors of its channels."""
    r1 = np.abs(first.weight).reshape(len(first.weight), -1).max(axis=1)
    split = _by_group(second)
    r2 = np.abs(split).max(axis=(1, 3)).reshape(-1)
    both = (r1 > 0) & (r2 > 0)
    s = np.sqrt(np.where(both, r1, 1.0) / np.where(both, r2, 1.0))
    s = np.clip(first.scale * s, 1 / LARGEST_FACTOR, LARGEST_FACTOR) / first.scale
    first.weight /= s.reshape(-1, *[1] * (first.weight.ndim - 1))
    first.bias /= s
    first.scale *= s
    split *= s.reshape(split.shape[0], 1, split.shape[2], 1)
    return np.asarray(s, np.float64)


def _by_group(layer: _Layer) -> FloatArray:
    """A view of the weights [groups, outputs, inputs, taps]."""
    groups = attribute_int(layer.node, "group", 1)
    outputs, inputs = layer.weight.shape[:2]
    return layer.weight.reshape(groups, outputs // groups, inputs, -1)


def _store(layer: _Layer, graph: ir.Graph) -> None:
    """Write a layer's constants back, and its clamps with a bound per channel."""
    weights = layer.site.weights
    assert weights is not None
    _set(weights.value, layer.weight)
    if weights.bias is not None:
        _set(weights.bias, layer.bias)
    if np.all(layer.scale == 1):
        return
    for node in layer.site.nodes[1:]:
        if node.op_type != "Relu":
            _scale_clamp(node, layer.scale, graph)


def _set(value: ir.Value, array: FloatArray) -> None:
    value.const_value = ir.Tensor(array.astype(np.float32), name=value.name)


def _scale_clamp(node: ir.Node, scale: FloatArray, graph: ir.Graph) -> None:
    """Bounds of a Clip, Min or Max divided by the factor of each channel."""
    rank = len(shape_of(node.outputs[0]))
    shape = (-1, *[1] * (rank - 2))
    x = next(v for v in node.inputs if v is not None and v.const_value is None)
    steps: list[tuple[str, FloatArray]] = []
    if node.op_type == "Clip":
        for value, op_type in zip(node.inputs[1:3], ("Max", "Min"), strict=False):
            bound = np.inf if value is None else float(value.const_value.numpy())  # type: ignore[union-attr]
            if abs(bound) < np.finfo(np.float32).max:
                steps.append((op_type, bound / scale))
    else:
        bounds = next(v for v in node.inputs if v is not None and v is not x)
        assert bounds.const_value is not None
        array = np.broadcast_to(bounds.const_value.numpy().reshape(-1), len(scale))
        steps.append((node.op_type, array.astype(np.float64) / scale))
    name = node.name or ""
    for op_type, array in steps:
        if op_type == "Max" and not array.any():
            made = ir.node("Relu", [x], name=f"{name}_low")
        else:
            side = "low" if op_type == "Max" else "high"
            bound_value = _constant(array.reshape(shape), f"{name}_{side}_bounds", graph)
            made = ir.node(op_type, [x, bound_value], name=f"{name}_{side}")
        made.outputs[0].name = f"{made.name}_output"
        made.outputs[0].type, made.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
        graph.insert_before(node, made)
        x = made.outputs[0]
    _take_place(node, x, graph)


def _take_place(node: ir.Node, value: ir.Value, graph: ir.Graph) -> None:
    """`value` and its maker take the places and names of the node's output and the node."""
    old = node.outputs[0]
    name, node_name = old.name, node.name
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    maker = value.producer()
    graph.remove(node, safe=True)
    old.name = None
    value.name = name
    if maker is not None:
        maker.name = node_name


def _constant(array: FloatArray, name: str, graph: ir.Graph) -> ir.Value:
    tensor = ir.Tensor(array.astype(np.float32), name=name)
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.FLOAT),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value
