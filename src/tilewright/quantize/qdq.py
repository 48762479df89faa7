"""Writes a QDQ model: standard ONNX that onnxruntime runs and other compilers read.

Naming is fixed, so that equal inputs give equal bytes and `strip` finds the float names: for an
activation `x` the pair `x_QuantizeLinear`, `x_DequantizeLinear` with tensors `x_quantized`,
`x_dequantized`, `x_scale`, `x_zero_point`; a weight `w` becomes the output of a DequantizeLinear of
`w_quantized`.  A graph output keeps its name on the dequantized side; the value before the pair is
then `x_float`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tilewright.graph import Array, DType, Encoding
from tilewright.ops.pattern import QuantizedConstant, Site, shape_of
from tilewright.quantize.sites import Partition
from tilewright.quantize.weights import QuantizedProduct

ONNX_TYPES = {
    DType.U8: ir.DataType.UINT8,
    DType.S8: ir.DataType.INT8,
    DType.S16: ir.DataType.INT16,
    DType.S32: ir.DataType.INT32,
}


@dataclass(frozen=True)
class Quantization:
    """All numbers of a quantized model.

    Args:
        encodings: value name -> encoding of an activation.
        products: name of a site's last node -> its constants.
    """

    encodings: Mapping[str, Encoding]
    products: Mapping[str, QuantizedProduct]


def write_qdq(
    model: ir.Model, partition: Partition, numbers: Quantization, metadata: Mapping[str, str]
) -> ir.Model:
    """A QDQ copy of a canonical float model; nodes outside the sites stay float.

    Args:
        model: the float model; left unchanged.
        partition: of `model`.
        metadata: added to the model's metadata_props.
    """
    copy = model.clone()
    writer = _Writer(copy, partition)
    for site in partition.sites:
        if site.weights is not None:
            writer.product(site, numbers.products[site.name])
    for name, encoding in numbers.encodings.items():
        writer.pair(writer.values[name], encoding)
    writer.drop_unused_constants()
    _state_no_unit_dilations(copy)
    for key in sorted(metadata):
        copy.metadata_props[key] = metadata[key]
    copy.graph.opset_imports[""] = max(21, copy.graph.opset_imports.get("", 21))
    copy.ir_version = max(copy.ir_version or 10, 10)
    return copy


class _Writer:
    def __init__(self, copy: ir.Model, partition: Partition) -> None:
        self.graph = copy.graph
        self.nodes = {node.name: node for node in copy.graph}
        self.covered = {self.nodes[n.name] for n in partition.site_of}
        self.values: dict[str, ir.Value] = {v.name or "": v for v in copy.graph.inputs}
        self.values.update(copy.graph.initializers)
        for node in copy.graph:
            self.values.update((v.name or "", v) for v in node.outputs)
        self.names = set(self.values)
        self.node_names = {name or "" for name in self.nodes}

    def unique(self, base: str) -> str:
        return _unique(base, self.names)

    def unique_node(self, base: str) -> str:
        return _unique(base, self.node_names)

    def constant(self, array: Array, name: str) -> ir.Value:
        unique = self.unique(name)
        tensor = ir.Tensor(array, name=unique)
        value = ir.Value(
            name=unique,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def pair(self, value: ir.Value, encoding: Encoding) -> None:
        """Put a Q/DQ pair behind `value`: for all readers if the NPU makes it, else for the NPU."""
        base = value.name or ""
        producer = value.producer()
        on_npu = producer in self.covered
        readers = [use for use in value.uses() if on_npu or use.node in self.covered]
        scale = self.constant(np.array(encoding.scale, np.float32), f"{base}_scale")
        zero = self.constant(
            np.array(encoding.zero_point, encoding.dtype.numpy), f"{base}_zero_point"
        )
        q = ir.node(
            "QuantizeLinear", [value, scale, zero], name=self.unique_node(f"{base}_QuantizeLinear")
        )
        dq = ir.node(
            "DequantizeLinear",
            [q.outputs[0], scale, zero],
            name=self.unique_node(f"{base}_DequantizeLinear"),
        )
        _set(q.outputs[0], self.unique(f"{base}_quantized"), ONNX_TYPES[encoding.dtype], value)
        real = dq.outputs[0]
        if on_npu and value.is_graph_output():
            value.name = self.unique(f"{base}_float")
            _set(real, base, ir.DataType.FLOAT, value)
            outputs = self.graph.outputs
            for i, output in enumerate(outputs):
                if output is value:
                    outputs[i] = real
        else:
            _set(real, self.unique(f"{base}_dequantized"), ir.DataType.FLOAT, value)
        for use in readers:
            use.node.replace_input_with(use.idx, real)
        self._insert(producer, readers, [q, dq])

    def _insert(self, producer: ir.Node | None, readers: list[Any], nodes: list[ir.Node]) -> None:
        if producer is not None:
            self.graph.insert_after(producer, nodes)
            return
        first = next((n for n in self.graph if any(u.node is n for u in readers)), None)
        if first is None:
            self.graph.extend(nodes)
        else:
            self.graph.insert_before(first, nodes)

    def product(self, site: Site, constants: QuantizedProduct) -> None:
        """Replace weight and bias of one site by DequantizeLinear of their codes."""
        assert site.weights is not None
        nodes = [self.nodes[n.name] for n in site.nodes]
        self.dequantized(site.weights.value, constants.weight, nodes)
        bias = site.weights.bias
        if constants.bias is not None and bias is not None:
            self.dequantized(bias, constants.bias, nodes)
        elif constants.float_bias is not None and bias is not None:
            self.float_constant(bias, constants.float_bias, nodes)
        elif constants.float_bias is not None:
            self.add_bias(nodes, site, constants)

    def dequantized(
        self, original: ir.Value, codes: QuantizedConstant, nodes: list[ir.Node]
    ) -> None:
        """DequantizeLinear of `codes` in place of the float constant `original` in `nodes`."""
        value = self.values[original.name or ""]
        stored = codes.codes.reshape(shape_of(value))
        dq = self.dequantize(value.name or "", codes, stored, nodes[0])
        self.replace(value, dq.outputs[0], nodes)

    def dequantize(
        self, base: str, codes: QuantizedConstant, stored: Array, before: ir.Node
    ) -> ir.Node:
        axis = codes.axis
        if axis is not None and codes.dtype is DType.S32:
            axis = next((a for a, n in enumerate(stored.shape) if n > 1), 0)
        shape = () if axis is None else codes.scale.shape
        inputs = [
            self.constant(stored, f"{base}_quantized"),
            self.constant(codes.scale.reshape(shape), f"{base}_scale"),
            self.constant(
                codes.zero_point.astype(codes.dtype.numpy).reshape(shape), f"{base}_zero_point"
            ),
        ]
        dq = ir.node(
            "DequantizeLinear",
            inputs,
            {} if axis is None else {"axis": axis},
            name=self.unique_node(f"{base}_DequantizeLinear"),
        )
        _set(dq.outputs[0], base, ir.DataType.FLOAT, inputs[0])
        self.graph.insert_before(before, dq)
        return dq

    def float_constant(self, original: ir.Value, array: Array, nodes: list[ir.Node]) -> None:
        value = self.values[original.name or ""]
        assert value.const_value is not None
        real = array.astype(np.float32).reshape(value.const_value.shape.numpy())
        if np.array_equal(real, value.const_value.numpy()):
            return
        self.replace(value, self.constant(real, value.name or ""), nodes)

    def add_bias(self, nodes: list[ir.Node], site: Site, constants: QuantizedProduct) -> None:
        """A third input for a Conv, ConvTranspose or Gemm that had no bias."""
        assert constants.float_bias is not None and site.weights is not None
        weight = site.weights.value.name or ""
        node = next(n for n in nodes if n.op_type in ("Conv", "ConvTranspose", "Gemm"))
        if constants.bias is not None:
            name = self.unique(f"{weight}_bias")
            bias = self.dequantize(name, constants.bias, constants.bias.codes, node).outputs[0]
        else:
            bias = self.constant(constants.float_bias.astype(np.float32), f"{weight}_bias")
        node.resize_inputs(3)
        node.replace_input_with(2, bias)

    def replace(self, old: ir.Value, new: ir.Value, nodes: list[ir.Node]) -> None:
        """Let `nodes` read `new`; it takes the old constant's name when nothing else reads that."""
        for node in nodes:
            for i, value in enumerate(node.inputs):
                if value is old:
                    node.replace_input_with(i, new)
        name = old.name or ""
        if old.uses() or old.is_graph_output():
            new.name = self.unique(name)
            return
        self.graph.initializers.pop(name, None)
        if new.is_initializer():
            self.graph.initializers.pop(new.name or "", None)
            new.name = name
            self.graph.register_initializer(new)
        else:
            new.name = name

    def drop_unused_constants(self) -> None:
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self.graph.initializers[name]


def _state_no_unit_dilations(copy: ir.Model) -> None:
    """Leave out AveragePool's dilations of 1: onnxruntime fails to fuse Q/DQ around them."""
    for node in copy.graph:
        stated = node.attributes.get("dilations") if node.op_type == "AveragePool" else None
        if stated is not None and set(stated.as_ints()) == {1}:
            del node.attributes["dilations"]


def _unique(base: str, taken: set[str]) -> str:
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return name


def _set(value: ir.Value, name: str, dtype: ir.DataType, like: ir.Value) -> None:
    value.name, value.type, value.shape = name, ir.TensorType(dtype), like.shape
