"""Upsample and the older Resize forms as Resize of opset 19 and later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from tilewright.importer.edit import Attribute
from tilewright.importer.forms.site import Site

Replacement = Sequence[ir.Value] | None
Scales = npt.NDArray[np.float32]


def upsample(site: Site) -> Replacement:
    """Upsample(x, scales) and Resize-10(x, scales) = Resize(x, scales; asymmetric).

    Nearest takes the floor of the source position; where it shrinks an axis (Resize-10 only)
    onnxruntime, which defines that form in practice, takes the ceiling.
    """
    scales = _attribute_or_input_scales(site)
    mode = site.string_attribute("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    attributes: dict[str, Attribute] = {
        "mode": mode,
        "coordinate_transformation_mode": "asymmetric",
    }
    if scales is None:
        return [site.emit("Resize", [site.input(0), None, site.input(1)], _floor(attributes))]
    if mode != "nearest" or not (scales < 1).any():
        return [_resize(site, site.input(0), scales, _floor(attributes))]
    shrunk = _resize(
        site, site.input(0), np.minimum(scales, 1), {**attributes, "nearest_mode": "ceil"}
    )
    if not (scales > 1).any():
        return [shrunk]
    return [_resize(site, shrunk, np.maximum(scales, 1), _floor(attributes))]


def _floor(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    if attributes["mode"] != "nearest":
        return attributes
    return {**attributes, "nearest_mode": "floor"}


def _attribute_or_input_scales(site: Site) -> Scales | None:
    attribute = site.node.attributes.get("scales")
    if attribute is not None:
        return np.asarray(attribute.as_floats(), np.float32)
    constant = site.constant(1)
    return None if constant is None else np.asarray(constant, np.float32).reshape(-1)


def _resize(
    site: Site, data: ir.Value, scales: Scales, attributes: dict[str, Attribute]
) -> ir.Value:
    return site.emit("Resize", [data, None, site.new_constant(scales, "scales")], attributes)


def resize(site: Site) -> Replacement:
    """Resize(x, scales; every attribute stated): roi, axes and sizes resolved where that is exact.

    sizes become scales when float32(size / input) * input floors to the size; scales become sizes
    when rounding decides what they floor to. tf_half_pixel_for_nn with floor is half_pixel with
    round_prefer_ceil: floor((i + 0.5) / s) = round_half_up((i + 0.5) / s - 0.5).
    """
    if site.opset < 11:
        return upsample(site)
    shape = site.shape()
    transformation = site.string_attribute("coordinate_transformation_mode", "half_pixel")
    if shape is None or transformation == "tf_crop_and_resize":
        return None
    if site.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    mode, nearest = (
        site.string_attribute("mode", "nearest"),
        site.string_attribute("nearest_mode", "round_prefer_floor"),
    )
    if transformation == "tf_half_pixel_for_nn":
        if nearest != "floor":
            raise site.error(f"has tf_half_pixel_for_nn with nearest_mode {nearest}")
        transformation, nearest = "half_pixel", "round_prefer_ceil"
    attributes: dict[str, Attribute] = {
        "mode": mode,
        "coordinate_transformation_mode": transformation,
    }
    if mode == "nearest":
        attributes["nearest_mode"] = nearest
    if mode == "cubic":
        attributes["cubic_coeff_a"] = site.float_attribute("cubic_coeff_a", -0.75)
    if mode != "nearest":
        attributes["exclude_outside"] = site.int_attribute("exclude_outside", 0)
        attributes["antialias"] = site.int_attribute("antialias", 0)
    axes = site.ints_attribute("axes") or tuple(range(len(shape)))
    axes = tuple(axis % len(shape) for axis in axes)
    given = site.constant(3) if site.has(3) else None
    if given is not None and given.size:
        sizes = list(shape)
        for axis, size in zip(axes, given, strict=True):
            sizes[axis] = int(size)
        return [_by_sizes(site, shape, sizes, attributes)]
    scales = site.constant(2)
    if scales is None or scales.size == 0:
        return None
    full = np.ones(len(shape), np.float32)
    full[list(axes)] = np.asarray(scales, np.float32).reshape(-1)
    sizes = [int(size) for size in np.floor(np.asarray(shape, np.float32) * full)]
    if _gives(full, shape, sizes) or (np.divide(sizes, shape, dtype=np.float32) != full).any():
        return [_resize(site, site.input(0), full, attributes)]
    return [_by_sizes(site, shape, sizes, attributes)]


def _by_sizes(
    site: Site,
    shape: tuple[int, ...],
    sizes: Sequence[int],
    attributes: dict[str, Attribute],
) -> ir.Value:
    scales = np.divide(sizes, shape, dtype=np.float32)
    if _gives(scales, shape, sizes):
        return _resize(site, site.input(0), scales, attributes)
    operand = site.new_ints(sizes, "sizes")
    return site.emit("Resize", [site.input(0), None, None, operand], attributes)


def _gives(scales: Scales, shape: tuple[int, ...], sizes: Sequence[int]) -> bool:
    """Whether floor(scale * input) is the size in float32 (onnxruntime) and exactly (onnx)."""
    rounded = np.floor(np.asarray(shape, np.float32) * scales)
    exact = np.floor(np.asarray(shape, np.float64) * scales.astype(np.float64))
    return bool((rounded == sizes).all() and (exact == sizes).all())
