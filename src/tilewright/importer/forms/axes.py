"""Operators whose axes, bounds or lengths were attributes once and are inputs at opset 21."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tilewright.importer.forms.site import Site

Replacement = Sequence[ir.Value] | None


def _axes(site: Site, index: int) -> tuple[int, ...] | None:
    """The axes from the attribute or from constant input `index`, counted from the front."""
    axes = site.ints_attribute("axes")
    if axes is None:
        constant = site.constant(index)
        if constant is None:
            return None
        axes = tuple(int(axis) for axis in constant.reshape(-1))
    rank = site.rank()
    return axes if rank is None else tuple(axis % rank if rank else axis for axis in axes)


def reshape_to(site: Site, shape: Sequence[int]) -> list[ir.Value]:
    return [site.emit("Reshape", [site.input(0), site.new_ints(shape, "shape")])]


def squeeze(site: Site) -> Replacement:
    """Squeeze(x, axes) = Reshape(x, the dimensions left)."""
    shape, axes = site.shape(), _axes(site, 1)
    if shape is None:
        if site.ints_attribute("axes") is None:
            return None
        return [site.emit("Squeeze", [site.input(0), site.new_ints(axes or (), "axes")])]
    if axes is None:
        if site.has(1):
            return None
        axes = tuple(axis for axis, dim in enumerate(shape) if dim == 1)
    if any(shape[axis] != 1 for axis in axes):
        raise site.error(f"squeezes axes {list(axes)} of shape {list(shape)}, not all of size 1")
    return reshape_to(site, [dim for axis, dim in enumerate(shape) if axis not in axes])


def unsqueeze(site: Site) -> Replacement:
    """Unsqueeze(x, axes) = Reshape(x, the dimensions with 1 inserted at axes of the result)."""
    axes = site.ints_attribute("axes")
    if axes is None:
        constant = site.constant(1)
        if constant is None:
            return None
        axes = tuple(int(axis) for axis in constant.reshape(-1))
    shape = site.shape()
    if shape is None:
        return [site.emit("Unsqueeze", [site.input(0), site.new_ints(axes, "axes")])]
    rank = len(shape) + len(axes)
    inserted = {axis % rank for axis in axes}
    left = iter(shape)
    return reshape_to(site, [1 if axis in inserted else next(left) for axis in range(rank)])


def flatten(site: Site) -> Replacement:
    """Flatten(x, axis) = Reshape(x, [product before axis, product from axis on])."""
    shape = site.shape()
    if shape is None:
        return None
    axis = site.int_attribute("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return reshape_to(site, [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))])


def reshape(site: Site) -> Replacement:
    """Reshape with -1 and 0 resolved: the shape operand is the result's shape."""
    target, shape = site.constant(1), site.shape()
    if target is None or shape is None:
        return None
    dims = [int(dim) for dim in target.reshape(-1)]
    if not site.int_attribute("allowzero", 0):
        if any(dim == 0 and axis >= len(shape) for axis, dim in enumerate(dims)):
            raise site.error(f"copies a dimension that its input {list(shape)} does not have")
        dims = [shape[axis] if dim == 0 else dim for axis, dim in enumerate(dims)]
    known = int(np.prod([dim for dim in dims if dim != -1]))
    total = int(np.prod(shape))
    if dims.count(-1) == 1 and known and total % known == 0:
        dims = [total // known if dim == -1 else dim for dim in dims]
    if -1 in dims or int(np.prod(dims)) != total:
        raise site.error(f"cannot reshape {list(shape)} to {[int(d) for d in target]}")
    if dims == [int(dim) for dim in target.reshape(-1)] and not site.int_attribute("allowzero", 0):
        return None
    return reshape_to(site, dims)


def reduce(site: Site) -> Replacement:
    """ReduceX(x; axes) = ReduceX(x, axes): axes listed, counted from the front, ascending."""
    axes, rank = _axes(site, 1), site.rank()
    if site.has(1) and axes is None:
        return None
    if not axes:
        if site.int_attribute("noop_with_empty_axes", 0):
            return [site.emit("Identity", [site.input(0)])]
        if rank is None:
            return None
        axes = tuple(range(rank))
    keepdims = site.int_attribute("keepdims", 1)
    return [
        site.emit(
            site.node.op_type,
            [site.input(0), site.new_ints(sorted(axes), "axes")],
            {"keepdims": keepdims, "noop_with_empty_axes": 0},
        )
    ]


def clip(site: Site) -> Replacement:
    """Clip(x; min, max) = Clip(x, min, max) with both bounds given, as scalars of x's type."""
    dtype = site.input(0).dtype
    if dtype is None:
        return None
    kind = dtype.numpy()
    limits = _limits(dtype)
    bounds: list[ir.Value] = []
    for index, (name, limit) in enumerate(zip(("min", "max"), limits, strict=True), start=1):
        if site.opset < 11:
            bound = np.asarray(site.float_attribute(name, float(limit)), kind)
        elif not site.has(index):
            bound = np.asarray(limit, kind)
        else:
            constant = site.constant(index)
            if constant is None:
                return None
            bound = np.asarray(constant.reshape(()), kind)
        with np.errstate(invalid="ignore"):
            bound = np.asarray(np.clip(bound, *limits), kind)
        bounds.append(site.new_constant(bound, name))
    return [site.emit("Clip", [site.input(0), *bounds])]


def _limits(dtype: ir.DataType) -> tuple[float, float]:
    """Lowest and largest number of a type; exact in a Python number also for int64."""
    if dtype.is_floating_point():
        return float(dtype.min), float(dtype.max)
    return int(dtype.min), int(dtype.max)


def slice_(site: Site) -> Replacement:
    """Slice with starts, ends, axes and steps as inputs; axes >= 0, bounds inside the tensor."""
    starts, ends = _vector(site, "starts", 1), _vector(site, "ends", 2)
    shape = site.shape()
    if starts is None or ends is None or shape is None:
        return None
    axes = _vector(site, "axes", 3) or tuple(range(len(starts)))
    steps = _vector(site, "steps", 4) or (1,) * len(starts)
    if (site.has(3) and site.constant(3) is None) or (site.has(4) and site.constant(4) is None):
        return None
    axes = tuple(axis % len(shape) for axis in axes)
    bounds = [
        _bounds(start, end, step, shape[axis])
        for start, end, step, axis in zip(starts, ends, steps, axes, strict=True)
    ]
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    columns = [
        [bounds[position][0] for position in order],
        [bounds[position][1] for position in order],
        [axes[position] for position in order],
        [steps[position] for position in order],
    ]
    operands = [
        site.new_ints(column, role)
        for column, role in zip(columns, ("starts", "ends", "axes", "steps"), strict=True)
    ]
    return [site.emit("Slice", [site.input(0), *operands])]


def _vector(site: Site, name: str, index: int) -> tuple[int, ...] | None:
    attribute = site.ints_attribute(name)
    if attribute is not None:
        return attribute
    constant = site.constant(index)
    return None if constant is None else tuple(int(item) for item in constant.reshape(-1))


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Clamp as the operator does; an end before the first element stays negative for step < 0."""
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size)
    end = min(max(end, -1), size - 1)
    return min(max(start, 0), size - 1), end if end >= 0 else -size - 1


def split(site: Site) -> Replacement:
    """Split(x, lengths; axis >= 0): every length stated."""
    count, shape = len(site.node.outputs), site.shape()
    if shape is None:
        return None
    axis = site.axis("axis", 0)
    lengths = _vector(site, "split", 1)
    if lengths is None:
        if site.has(1):
            return None
        chunk = -(-shape[axis] // count)
        lengths = tuple(min(chunk, shape[axis] - chunk * i) for i in range(count))
    operands = [site.input(0), site.new_ints(lengths, "split")]
    return site.emit_many("Split", operands, {"axis": axis}, count)


def top_k(site: Site) -> Replacement:
    """TopK(x; k) = TopK(x, k; largest, sorted)."""
    rank = site.rank()
    attributes = {
        "axis": site.int_attribute("axis", -1) if rank is None else site.axis("axis", -1),
        "largest": site.int_attribute("largest", 1),
        "sorted": site.int_attribute("sorted", 1),
    }
    k = site.input(1) if site.has(1) else site.new_ints([site.int_attribute("k", 1)], "k")
    return site.emit_many("TopK", [site.input(0), k], attributes, 2)


def pad(site: Site) -> Replacement:
    """Pad(x, pads[, value]; mode): pads for every axis, no axes operand."""
    rank, dtype = site.rank(), site.input(0).dtype
    pads = _vector(site, "pads", 1)
    if pads is None or rank is None or dtype is None:
        return None
    axes = _axes(site, 3) if site.has(3) else tuple(range(rank))
    if axes is None:
        return None
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        full[axis] = pads[position]
        full[axis + rank] = pads[position + len(axes)]
    operands: list[ir.Value | None] = [site.input(0), site.new_ints(full, "pads")]
    mode = site.string_attribute("mode", "constant")
    if mode == "constant":
        if site.has(2):
            operands.append(site.input(2))
        else:
            value = np.asarray(site.float_attribute("value", 0.0), dtype.numpy())
            operands.append(site.new_constant(value, "value"))
    return [site.emit("Pad", operands, {"mode": mode})]


def transpose(site: Site) -> Replacement:
    """Transpose with its permutation stated."""
    rank = site.rank()
    if rank is None or site.ints_attribute("perm") is not None:
        return None
    return [site.emit("Transpose", [site.input(0)], {"perm": list(range(rank))[::-1]})]


def axis_attribute(site: Site) -> Replacement:
    """Op(x; axis) with the axis stated and counted from the front, in place."""
    if site.rank() is not None:
        site.node.attributes["axis"] = ir.AttrInt64("axis", site.axis("axis", 0))
    return None
