"""Conv, ConvTranspose and the pools with every window attribute stated and no auto_pad."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tilewright.importer.edit import Attribute
from tilewright.importer.forms.site import Site

Replacement = Sequence[ir.Value] | None


def resolve_auto_pad(
    auto_pad: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Padding for SAME_UPPER, SAME_LOWER and VALID, begins then ends (ONNX Conv).

    SAME: output = ceil(input / stride); total = max((output - 1) * stride + extent - input, 0),
    the odd one at the end for SAME_UPPER and at the beginning for SAME_LOWER.
    """
    if auto_pad == "VALID":
        return [0] * (2 * len(sizes))
    begins, ends = [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        output = -(-size // stride)
        total = max((output - 1) * stride + (extent - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if auto_pad == "SAME_UPPER" else large)
        ends.append(large if auto_pad == "SAME_UPPER" else small)
    return begins + ends


def _window(site: Site, kernel: Sequence[int]) -> dict[str, list[int]]:
    """kernel_shape, strides, dilations and pads of the node, all stated."""
    spatial = len(kernel)
    strides = list(site.ints_attribute("strides") or (1,) * spatial)
    dilations = list(site.ints_attribute("dilations") or (1,) * spatial)
    auto_pad = site.string_attribute("auto_pad", "NOTSET")
    if auto_pad == "NOTSET":
        pads = list(site.ints_attribute("pads") or (0,) * (2 * spatial))
    else:
        shape = site.shape()
        if shape is None:
            raise site.error(f"has auto_pad={auto_pad} but an input of unknown shape")
        pads = resolve_auto_pad(auto_pad, shape[2:], kernel, strides, dilations)
    if not len(strides) == len(dilations) == len(pads) // 2 == spatial:
        raise site.error(
            f"has strides, dilations or pads that do not fit its kernel {list(kernel)}"
        )
    return {
        "kernel_shape": list(kernel),
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
    }


def _kernel(site: Site) -> tuple[int, ...]:
    weight = site.shape(1)
    kernel = site.ints_attribute("kernel_shape") or (weight[2:] if weight is not None else None)
    if kernel is None:
        raise site.error("has a weight of unknown shape and no kernel_shape")
    if weight is not None and tuple(kernel) != weight[2:]:
        raise site.error(f"has kernel_shape {list(kernel)} but a weight of {list(weight)}")
    return tuple(kernel)


def _operands(site: Site) -> list[ir.Value | None]:
    return [site.input(0), site.input(1), site.input(2) if site.has(2) else None]


def conv(site: Site) -> Replacement:
    """Conv(x, w[, b]; kernel_shape, strides, dilations, pads, group)."""
    group = site.int_attribute("group", 1)
    data, weight = site.shape(0), site.shape(1)
    if data is not None and weight is not None and data[1] != weight[1] * group:
        raise site.error(
            f"has weight {list(weight)} and group {group}, so takes {weight[1] * group} channels, "
            f"but its input is {list(data)}"
        )
    attributes: dict[str, Attribute] = {**_window(site, _kernel(site)), "group": group}
    return [site.emit("Conv", _operands(site), attributes)]


def conv_transpose(site: Site) -> Replacement:
    """ConvTranspose(x, w[, b]; ..., pads, output_padding): output_shape and auto_pad resolved.

    total = stride * (input - 1) + output_padding + extent - output, with output = input * stride
    for SAME; SAME_UPPER puts the odd one at the end, everything else at the beginning.
    """
    kernel = _kernel(site)
    spatial, shape = len(kernel), site.shape()
    group = site.int_attribute("group", 1)
    strides = list(site.ints_attribute("strides") or (1,) * spatial)
    dilations = list(site.ints_attribute("dilations") or (1,) * spatial)
    extra = list(site.ints_attribute("output_padding") or (0,) * spatial)
    auto_pad = site.string_attribute("auto_pad", "NOTSET")
    wanted = site.ints_attribute("output_shape")
    pads = list(site.ints_attribute("pads") or (0,) * (2 * spatial))
    if wanted is not None or auto_pad.startswith("SAME"):
        if shape is None:
            raise site.error("has output_shape or auto_pad but an input of unknown shape")
        sizes = (
            wanted[-spatial:]
            if wanted
            else [n * s for n, s in zip(shape[2:], strides, strict=True)]
        )
        for axis in range(spatial):
            extent = (kernel[axis] - 1) * dilations[axis] + 1
            total = strides[axis] * (shape[2 + axis] - 1) + extra[axis] + extent - sizes[axis]
            if total < 0:
                extra[axis] -= total
                total = 0
            small, large = total // 2, total - total // 2
            upper = auto_pad == "SAME_UPPER"
            pads[axis], pads[axis + spatial] = (small, large) if upper else (large, small)
    elif auto_pad == "VALID":
        pads = [0] * (2 * spatial)
    attributes: dict[str, Attribute] = {
        "kernel_shape": list(kernel),
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "output_padding": extra,
        "group": group,
    }
    return [site.emit("ConvTranspose", _operands(site), attributes)]


def max_pool(site: Site) -> Replacement:
    """MaxPool(x; kernel_shape, strides, dilations, pads, ceil_mode); used Indices stay."""
    kernel = site.ints_attribute("kernel_shape")
    if kernel is None:
        raise site.error("has no kernel_shape")
    attributes: dict[str, Attribute] = {
        **_window(site, kernel),
        "ceil_mode": site.int_attribute("ceil_mode", 0),
        "storage_order": site.int_attribute("storage_order", 0),
    }
    indices = site.node.outputs[1] if len(site.node.outputs) > 1 else None
    wanted = indices is not None and (bool(indices.uses()) or indices.is_graph_output())
    outputs = 2 if wanted else 1
    return site.emit_many("MaxPool", [site.input(0)], attributes, outputs)


def average_pool(site: Site) -> Replacement:
    """AveragePool(x; kernel_shape, strides, pads, ceil_mode, count_include_pad[, dilations])."""
    kernel = site.ints_attribute("kernel_shape")
    if kernel is None:
        raise site.error("has no kernel_shape")
    window = _window(site, kernel)
    if all(step == 1 for step in window["dilations"]):
        # onnxruntime copies attributes when it fuses quantizers into QLinearAveragePool, which has
        # no dilations.
        del window["dilations"]
    attributes: dict[str, Attribute] = {
        **window,
        "ceil_mode": site.int_attribute("ceil_mode", 0),
        "count_include_pad": site.int_attribute("count_include_pad", 0),
    }
    return [site.emit("AveragePool", [site.input(0)], attributes)]
