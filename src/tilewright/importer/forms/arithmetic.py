"""Operators whose meaning or attributes changed since opset 9, or that are trivial at inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tilewright.importer.forms.site import Site
from tilewright.importer.graphs import array_of

Replacement = Sequence[ir.Value] | None


def softmax(site: Site) -> Replacement:
    """Before opset 13: Softmax(x; a) is over all axes from a on, as one.

    That is Softmax over axis k when k is the only one of them that is longer than 1, else
    Reshape(Softmax(Reshape(x, [before, after]), -1), shape of x).
    """
    shape, kind = site.shape(), site.node.op_type
    if site.opset >= 13:
        axis = site.axis("axis", -1)
        site.node.attributes["axis"] = ir.AttrInt64("axis", axis)
        return None
    if shape is None:
        raise site.error("has the meaning of opset 12 and an input of unknown shape")
    axis = site.axis("axis", 1)
    long = [k for k in range(axis, len(shape)) if shape[k] != 1]
    if len(long) <= 1 and axis < len(shape):
        return [site.emit(kind, [site.input(0)], {"axis": long[0] if long else axis})]
    rows, columns = int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))
    flat = site.emit("Reshape", [site.input(0), site.new_ints([rows, columns], "flat")])
    result = site.emit(kind, [flat], {"axis": 1})
    return [site.emit("Reshape", [result, site.new_ints(shape, "shape")])]


def dropout(site: Site) -> Replacement:
    """Dropout(x) = x at inference; its mask is all true."""
    outputs = [site.input(0)]
    if len(site.node.outputs) > 1:
        mask = site.node.outputs[1]
        if mask.uses() or mask.is_graph_output():
            shape = site.shape()
            if shape is None:
                raise site.error("has a used mask and an input of unknown shape")
            outputs.append(site.new_constant(np.ones(shape, np.bool_), "mask"))
    return outputs


def batch_normalization(site: Site) -> Replacement:
    """BatchNormalization(x, scale, bias, mean, variance; epsilon): one output."""
    operands = [site.input(index) for index in range(5)]
    epsilon = site.float_attribute("epsilon", 1e-5)
    return [site.emit("BatchNormalization", operands, {"epsilon": epsilon})]


def cast_like(site: Site) -> Replacement:
    """CastLike(x, y) = Cast(x; type of y)."""
    dtype = site.input(1).dtype
    return None if dtype is None else [site.emit("Cast", [site.input(0)], {"to": int(dtype)})]


def sum_(site: Site) -> Replacement:
    """Sum(a, b, c) = Add(Add(a, b), c)."""
    total = site.input(0)
    for index in range(1, len(site.node.inputs)):
        total = site.emit("Add", [total, site.input(index)])
    return [total]


def extremum(site: Site) -> Replacement:
    """Max(a) = a, Max(a, b, c) = Max(Max(a, b), c); the same for Min."""
    count = len(site.node.inputs)
    if count == 2:
        return None
    result = site.input(0)
    for index in range(1, count):
        result = site.emit(site.node.op_type, [result, site.input(index)])
    return [result]


def scatter(site: Site) -> Replacement:
    """Scatter (removed at opset 11) = ScatterElements."""
    operands = [site.input(index) for index in range(3)]
    return [site.emit("ScatterElements", operands, {"axis": site.axis("axis", 0)})]


def group_normalization(site: Site) -> Replacement:
    """GroupNormalization-18 has scale and bias per group; opset 21 has them per channel."""
    if site.opset >= 21:
        return None
    shape, scale, bias = site.shape(), array_of(site.input(1)), array_of(site.input(2))
    groups = site.int_attribute("num_groups", 1)
    if shape is None or scale is None or bias is None:
        raise site.error("has the meaning of opset 18 and operands that are not constant")
    repeat = shape[1] // groups
    operands = [
        site.input(0),
        site.new_constant(np.repeat(scale, repeat), "scale"),
        site.new_constant(np.repeat(bias, repeat), "bias"),
    ]
    attributes = {"num_groups": groups, "epsilon": site.float_attribute("epsilon", 1e-5)}
    return [site.emit("GroupNormalization", operands, attributes)]


def grid_sample(site: Site) -> Replacement:
    """GridSample-16 says bilinear and bicubic where opset 20 says linear and cubic."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = site.string_attribute("mode", "linear")
    site.node.attributes["mode"] = ir.AttrString("mode", names.get(mode, mode))
    return None


def swish(site: Site) -> Replacement:
    """Swish(x; alpha) (opset 24) = x * Sigmoid(alpha * x)."""
    data, dtype = site.input(0), site.input(0).dtype
    alpha = site.float_attribute("alpha", 1.0)
    if dtype is None:
        return None
    gate = data
    if alpha != 1.0:
        gate = site.emit(
            "Mul", [data, site.new_constant(np.asarray(alpha, dtype.numpy()), "alpha")]
        )
    return [site.emit("Mul", [data, site.emit("Sigmoid", [gate])])]


def dft(site: Site) -> Replacement:
    """DFT-17(x, length; axis) = DFT-20(x, length, axis)."""
    if site.opset >= 20:
        return None
    length = site.input(1) if site.has(1) else None
    axis = site.new_constant(np.asarray(site.int_attribute("axis", 1), np.int64), "axis")
    attributes = {
        "inverse": site.int_attribute("inverse", 0),
        "onesided": site.int_attribute("onesided", 0),
    }
    return [site.emit("DFT", [site.input(0), length, axis], attributes)]


_DEFAULTS: dict[str, dict[str, float]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "Celu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "ThresholdedRelu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "InstanceNormalization": {"epsilon": 1e-5},
    "LayerNormalization": {"epsilon": 1e-5},
}


def float_defaults(site: Site) -> Replacement:
    """Op(x) with its default float attributes stated, in place."""
    for name, default in _DEFAULTS[site.node.op_type].items():
        if name not in site.node.attributes:
            site.node.attributes[name] = ir.AttrFloat32(name, default)
    if site.node.op_type == "LayerNormalization":
        site.node.attributes["axis"] = ir.AttrInt64("axis", site.axis("axis", -1))
        if site.int_attribute("stash_type", 1) == 1:
            site.node.attributes.pop("stash_type", None)
    return None


def space_to_depth(site: Site) -> Replacement:
    """SpaceToDepth with channels in the order (depth, row, column) as Reshape and Transpose."""
    shape = site.shape()
    if site.string_attribute("mode", "DCR") != "CRD":
        site.node.attributes.pop("mode", None)
        return None
    if shape is None:
        raise site.error("has depth first and no known shape")
    n, c, h, w = shape
    b = site.int_attribute("blocksize", 1)
    blocks = site.new_ints((n, c, h // b, b, w // b, b), "blocks")
    apart = site.emit("Reshape", [site.input(0), blocks])
    moved = site.emit("Transpose", [apart], {"perm": [0, 1, 3, 5, 2, 4]})
    joined = site.new_ints((n, c * b * b, h // b, w // b), "shape")
    return [site.emit("Reshape", [moved, joined])]


def depth_to_space(site: Site) -> Replacement:
    """DepthToSpace with its mode stated, in place."""
    if "mode" not in site.node.attributes:
        site.node.attributes["mode"] = ir.AttrString("mode", "DCR")
    return None
