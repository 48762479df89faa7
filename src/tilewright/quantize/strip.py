"""Reads a QDQ model: the float graph under its quantizers, and what they said.

    Q, DQ around an activation        -> encoding of the value before Q
    DQ of an initializer              -> float constant, and its codes as QuantizedConstant
    Q of an initializer               -> folded into codes first
    a second, different pair          -> Identity to a new value with that encoding (a rescale)
    u16 with zero point 32768         -> s16 with zero point 0
    an activation's scale per channel -> one for the tensor, spanning all channels (NNCF gives such
                                         scales to inputs of depthwise convolutions)

What onnxruntime's `quantize_static`, NNCF and this package write is read.  Values that such files
leave open are completed by `completion`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from tilewright.errors import ModelError
from tilewright.graph import Array, DType, Encoding
from tilewright.ops.pattern import FloatGraph, Note, QuantizedConstant
from tilewright.quantize.ranges import ActivationType, with_zero

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
DTYPES = {
    ir.DataType.UINT8: DType.U8,
    ir.DataType.INT8: DType.S8,
    ir.DataType.INT16: DType.S16,
    ir.DataType.UINT16: DType.S16,
    ir.DataType.INT32: DType.S32,
}


def is_qdq(model: ir.Model) -> bool:
    """Does the model hold quantizers?"""
    return any(node.op_type in (QUANTIZE, DEQUANTIZE) for node in model.graph)


def strip(model: ir.Model) -> FloatGraph:
    """The float graph of a QDQ model with its encodings and quantized constants.

    Raises:
        ModelError: a quantizer that the arithmetic has no form for; names the node.
    """
    from tilewright.quantize.completion import complete

    return complete(remove_pairs(model))


def remove_pairs(model: ir.Model) -> FloatGraph:
    """As `strip`, with the encodings of the file alone."""
    copy = model.clone()
    stripper = _Stripper(copy.graph)
    for node in list(copy.graph):
        if node.op_type == QUANTIZE:
            stripper.quantizer(node)
        elif node.op_type == DEQUANTIZE:
            stripper.dequantizer(node)
    stripper.sweep()
    notes = tuple(stripper.notes.values())
    return FloatGraph(copy.graph, stripper.encodings, stripper.constants, notes)


@dataclass(frozen=True)
class _Parameters:
    dtype: DType
    scale: Array
    zero: Array
    axis: int | None
    unsigned_16: bool

    @property
    def encoding(self) -> Encoding:
        """Of an activation; scales per channel become one that spans them all."""
        if self.scale.size == 1:
            return Encoding(self.dtype, float(self.scale.reshape(())), int(self.zero.reshape(())))
        lo, hi = self.dtype.range
        scale = self.scale.astype(np.float64)
        low, high = (scale * (lo - self.zero)).min(), (scale * (hi - self.zero)).max()
        return ActivationType(self.dtype).encode(with_zero(float(low), float(high)))


@dataclass
class _Stripper:
    graph: ir.Graph
    encodings: dict[str, Encoding] = field(default_factory=dict)
    constants: dict[str, QuantizedConstant] = field(default_factory=dict)
    codes: dict[ir.Value, tuple[ir.Value, _Parameters]] = field(default_factory=dict)
    """Output of a QuantizeLinear -> the value before it, and its parameters."""
    notes: dict[str, Note] = field(default_factory=dict)
    """By value name."""

    def quantizer(self, node: ir.Node) -> None:
        value, output = node.inputs[0], node.outputs[0]
        assert value is not None
        parameters = _parameters(node)
        if output.is_graph_output():
            raise ModelError(
                f"node {node.name}: the output {output.name} of the model is quantized",
                fix="let the model end in DequantizeLinear",
                code="TW-1130",
            )
        array = _array(value)
        if array is not None:
            self.codes[output] = (_constant_codes(array, parameters, output), parameters)
            return
        for use in output.uses():
            if use.node.op_type != DEQUANTIZE:
                raise ModelError(
                    f"node {use.node.name}: {use.node.op_type} reads integers",
                    fix="export the model in QDQ format",
                    code="TW-1132",
                )
        self.codes[output] = (value, parameters)
        self._note_spanned(value.name or "", parameters)

    def _note_spanned(self, name: str, parameters: _Parameters) -> None:
        if np.ptp(parameters.scale) > 0 or np.ptp(parameters.zero) > 0:
            self.notes[name] = Note(
                "joined-activation-scales",
                f"{name}: its {parameters.scale.size} channels have scales of their own in the "
                "quantized model; activations have one, which spans all channels",
            )

    def dequantizer(self, node: ir.Node) -> None:
        value = node.inputs[0]
        assert value is not None
        parameters = _parameters(node)
        if value in self.codes:
            source, written = self.codes[value]
            if source.const_value is None or source.producer() is not None:
                self.activation(node, source, written)
                return
            value = source
        if _array(value) is None:
            raise ModelError(
                f"node {node.name}: it dequantizes {value.name}, which no QuantizeLinear makes",
                fix="export the model with float inputs",
                code="TW-1133",
            )
        self.constant(node, value, parameters)

    def constant(self, node: ir.Node, value: ir.Value, parameters: _Parameters) -> None:
        """DequantizeLinear of codes becomes a float initializer under the output's name."""
        codes = _array(value)
        assert codes is not None
        if parameters.unsigned_16:
            codes = (codes.astype(np.int64) - 32768).astype(np.int16)
        output = node.outputs[0]
        stored = QuantizedConstant(
            codes,
            parameters.dtype,
            parameters.scale.reshape(-1).astype(np.float32),
            parameters.zero.reshape(-1).astype(np.int64),
            parameters.axis if parameters.scale.size > 1 else None,
        )
        name = output.name or ""
        real = stored.real()
        self.graph.remove(node)
        output.name = None
        constant = ir.Value(
            name=name,
            shape=ir.Shape(real.shape),
            type=ir.TensorType(ir.DataType.FLOAT),
            const_value=ir.Tensor(real, name=name),
        )
        self.graph.register_initializer(constant)
        output.replace_all_uses_with(constant, replace_graph_outputs=True)
        self.constants[name] = stored

    def activation(self, node: ir.Node, value: ir.Value, parameters: _Parameters) -> None:
        """The readers of a dequantized activation read the value itself."""
        encoding = parameters.encoding
        known = self.encodings.setdefault(value.name or "", encoding)
        output = node.outputs[0]
        takes_output = output.is_graph_output() and (
            value.is_graph_output() or value.is_graph_input()
        )
        if known != encoding or takes_output:
            identity = ir.node("Identity", [value], name=node.name)
            _like(identity.outputs[0], output)
            self.graph.insert_before(node, identity)
            self._rename(identity.outputs[0], output)
            self.encodings[identity.outputs[0].name or ""] = encoding
            return
        if output.is_graph_output():
            del self.encodings[value.name or ""]
            self._rename(value, output)
            self.encodings[value.name or ""] = encoding
            return
        output.replace_all_uses_with(value)

    def _rename(self, new: ir.Value, old: ir.Value) -> None:
        """`new` takes the place and the name of `old`."""
        name = old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name = f"{name}.replaced"
        new.name = name

    def sweep(self) -> None:
        """Drop quantizers and what only they read."""
        for node in reversed(list(self.graph)):
            if node.op_type in (QUANTIZE, DEQUANTIZE) and not any(
                o.uses() or o.is_graph_output() for o in node.outputs
            ):
                self.graph.remove(node, safe=True)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self.graph.initializers[name]
                self.constants.pop(name, None)


def _like(value: ir.Value, other: ir.Value) -> None:
    value.type, value.shape = other.type, other.shape


def _array(value: ir.Value | None) -> Array | None:
    if value is None or value.const_value is None or value.producer() is not None:
        return None
    return value.const_value.numpy()


def _parameters(node: ir.Node) -> _Parameters:
    """Scale, zero point, type and axis of a quantizer.

    Raises:
        ModelError: they are computed, blocked, or of a type that is not supported.
    """
    scale = _array(node.inputs[1])
    zero_value = node.inputs[2] if len(node.inputs) > 2 else None
    if scale is None or (zero_value is not None and _array(zero_value) is None):
        raise ModelError(
            f"node {node.name}: its scale or zero point is computed at run time", code="TW-1134"
        )
    block = node.attributes.get("block_size")
    if block is not None and block.as_int() != 0:
        raise ModelError(f"node {node.name}: it has a scale for each block", code="TW-1135")
    quantizes = node.op_type == QUANTIZE
    typed = zero_value if zero_value is not None else None if quantizes else node.inputs[0]
    onnx_type = ir.DataType.UINT8 if typed is None else typed.dtype
    given = node.attributes.get("output_dtype")
    if typed is None and given is not None and given.as_int() != 0:
        onnx_type = ir.DataType(given.as_int())
    if onnx_type is None and not quantizes:
        producer = node.inputs[0].producer() if node.inputs[0] is not None else None
        onnx_type = ir.DataType.UINT8 if producer is None else _parameters_type(producer)
    if onnx_type not in DTYPES:
        name = "an unknown type" if onnx_type is None else onnx_type.name.lower()
        raise ModelError(
            f"node {node.name}: tensors of {name} are not supported on the NPU",
            fix="quantize to 8 or 16 bits",
            code="TW-1136",
        )
    zero = _array(zero_value)
    zero = np.zeros(scale.shape, np.int64) if zero is None else zero.astype(np.int64)
    unsigned_16 = onnx_type == ir.DataType.UINT16
    if unsigned_16:
        zero = zero - 32768
    if DTYPES[onnx_type] is DType.S16 and np.any(zero != 0):
        raise ModelError(
            f"node {node.name}: 16-bit tensors are symmetric on the NPU, its zero point is not "
            f"{32768 if unsigned_16 else 0}",
            fix="quantize 16-bit tensors symmetrically",
            code="TW-1137",
        )
    if not np.isfinite(scale).all() or not (scale > 0).all():
        raise ModelError(f"node {node.name}: its scale is not positive", code="TW-1138")
    axis = node.attributes.get("axis")
    at = 1 if axis is None else axis.as_int()
    first = node.inputs[0]
    if at < 0 and first is not None and first.shape is not None:
        at += len(first.shape)
    return _Parameters(
        DTYPES[onnx_type], scale.astype(np.float32), zero, at if scale.ndim else None, unsigned_16
    )


def _parameters_type(quantizer: ir.Node) -> ir.DataType | None:
    zero = quantizer.inputs[2] if len(quantizer.inputs) > 2 else None
    return ir.DataType.UINT8 if zero is None else zero.dtype


def _constant_codes(array: Array, parameters: _Parameters, like: ir.Value) -> ir.Value:
    """The initializer that QuantizeLinear of a constant makes, as codes (s16 for u16)."""
    shape = [1] * array.ndim
    if parameters.scale.size > 1 and parameters.axis is not None:
        shape[parameters.axis] = -1
    scale, zero = parameters.scale.reshape(shape), parameters.zero.reshape(shape)
    info = np.iinfo(parameters.dtype.numpy)
    q = np.rint(array.astype(np.float32) / scale) + zero
    codes = np.clip(q, info.min, info.max).astype(np.int64)
    stored = codes.astype(parameters.dtype.numpy)
    if parameters.unsigned_16:
        stored = (codes + 32768).astype(np.uint16)
    return ir.Value(name=like.name, const_value=ir.Tensor(stored))
