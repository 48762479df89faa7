"""Float models with extra outputs: statistics are computed inside the onnxruntime graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.ops.pattern import Site
from tilewright.quantize.ranges import Range
from tilewright.quantize.sites import Partition

BINS = 2048


@dataclass(frozen=True)
class ProductProbe:
    """Where the mean pre-activation of a product is read.

    Args:
        node: the ONNX node that multiplies.
        axis: axis of its output that holds the output channels.
    """

    site: Site
    node: ir.Node
    axis: int

    @property
    def output(self) -> str:
        return self.node.outputs[0].name or ""


def product_probes(partition: Partition) -> list[ProductProbe]:
    """The products whose bias can be corrected: a bias is there or can be added."""
    found = []
    for site in partition.sites:
        if site.weights is None:
            continue
        node = next(n for n in site.nodes if site.weights.value in n.inputs)
        if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
            found.append(ProductProbe(site, node, 1))
        elif node.op_type == "MatMul" and site.weights.bias is not None:
            rank = 0 if node.outputs[0].shape is None else len(node.outputs[0].shape)
            axis = rank - 1 if node.inputs[1] is site.weights.value else rank - 2
            found.append(ProductProbe(site, node, axis))
    return found


class ProbedModel:
    """A copy of a model to which outputs are added."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model.clone()
        self.graph = self.model.graph
        self.values: dict[str, ir.Value] = {v.name or "": v for v in self.graph.inputs}
        for node in self.graph:
            self.values.update((v.name or "", v) for v in node.outputs)
        self._axes: dict[tuple[int, ...], ir.Value] = {}

    def lowest(self, name: str, output: str) -> None:
        """Smallest element of a value; of each channel where the value is [N, C, H, W]."""
        self._reduce("ReduceMin", name, output)

    def highest(self, name: str, output: str) -> None:
        self._reduce("ReduceMax", name, output)

    def mean(self, name: str, axis: int, output: str) -> None:
        """Mean over all axes but `axis`, for [N, C, H, W] over H and W alone."""
        value = self.values[name]
        rank = len(value.shape) if value.shape is not None else 0
        if rank == 4 and axis == 1:
            self._add("GlobalAveragePool", [value], output)
            return
        axes = tuple(a for a in range(rank) if a != axis)
        self._add("ReduceMean", [value, *self._constant(axes)], output, {"keepdims": 0})

    def expose(self, name: str) -> None:
        """Make a value an output as it is."""
        value = self.values[name]
        if not value.is_graph_output():
            self.graph.outputs.append(value)

    def codes(self, name: str, reals: Range, output: str) -> None:
        """Bin numbers as u16; bin i is centred on `(i - zero) * scale`, see `bins_of`."""
        scale, zero = bins_of(reals)
        parameters = [
            self._initializer(np.array(scale, np.float32), f"{output}.scale"),
            self._initializer(np.array(zero, np.uint16), f"{output}.zero"),
        ]
        self._add("QuantizeLinear", [self.values[name], *parameters], output)

    def floor_rows(self, name: str, axis: int, distance: float) -> None:
        """From now on probes see nothing of a value that lies further below its row's maximum."""
        value = self.values[name]
        far = self._initializer(np.array(distance, np.float32), f"probe.distance:{name}")
        top = self._node("ReduceMax", [value, *self._constant((axis,))], f"probe.top:{name}")
        least = self._node("Sub", [top, far], f"probe.least:{name}")
        self._replace(name, self._node("Max", [value, least], f"probe.floored:{name}"))

    def clip(self, name: str, reach: float) -> None:
        """From now on probes see a value within [-reach, reach]."""
        bounds = [
            self._initializer(np.array(sign * reach, np.float32), f"probe.bound{sign}:{name}")
            for sign in (-1, 1)
        ]
        self._replace(name, self._node("Clip", [self.values[name], *bounds], f"probe.clip:{name}"))

    def _replace(self, name: str, seen: ir.Value) -> None:
        seen.type, seen.shape = self.values[name].type, self.values[name].shape
        self.values[name] = seen

    def _node(self, op_type: str, inputs: Sequence[ir.Value], output: str) -> ir.Value:
        node = ir.node(op_type, inputs, name=f"{output}.node")
        node.outputs[0].name = output
        self.graph.append(node)
        return node.outputs[0]

    def _reduce(self, op_type: str, name: str, output: str) -> None:
        value = self.values[name]
        axes = self._constant((2, 3)) if value.shape is not None and len(value.shape) == 4 else []
        self._add(op_type, [value, *axes], output, {"keepdims": 0})

    def _constant(self, axes: tuple[int, ...]) -> list[ir.Value]:
        if not axes:
            return []
        if axes not in self._axes:
            name = "probe.axes." + ".".join(map(str, axes))
            self._axes[axes] = self._initializer(np.array(axes, np.int64), name)
        return [self._axes[axes]]

    def _initializer(self, array: np.ndarray, name: str) -> ir.Value:
        value = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
        value.type, value.shape = ir.TensorType(value.const_value.dtype), ir.Shape(array.shape)  # type: ignore[union-attr]
        self.graph.register_initializer(value)
        return value

    def _add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        output: str,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        node = ir.node(op_type, inputs, attributes or {}, name=f"{output}.node")
        node.outputs[0].name = output
        self.graph.append(node)
        self.graph.outputs.append(node.outputs[0])


def bins_of(reals: Range) -> tuple[float, int]:
    """Width of a bin and the number of the bin that is centred on zero."""
    width = float(np.float32(max(reals.width / (BINS - 1), float(np.finfo(np.float32).tiny))))
    return width, round(-reals.low / width)


def never_negative(site: Site | None) -> bool:
    """Does the site end in a clamp whose lower bound is zero or more?"""
    if site is None:
        return False
    last = site.nodes[-1]
    if last.op_type == "Clip" and len(last.inputs) > 1 and last.inputs[1] is not None:
        bound = last.inputs[1].const_value
        return bound is not None and bool(bound.numpy().min() >= 0)
    return last.op_type == "Relu"
