"""Every operator in one explicit list: matching, binding, reading and documentation start here.

A module of this package that lowers ONNX nodes declares

    ONNX       the ONNX operator types whose nodes may start one of its patterns
    KINDS      the kinds of the sites that its `match` makes; `bind` takes them
    OPERATORS  the integer operators that its sites become
    TYPES      types of the run-time operands, as text
    LIMITS     one line: what is supported, for people

and the functions `match` and `bind`.  Order matters where two modules name the same ONNX operator:
the first that matches wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import onnx_ir as ir

from tilewright.graph import Operator
from tilewright.ops import (
    add,
    attention,
    batchnorm,
    clamp,
    concat,
    constant,
    conv,
    deconv,
    dense,
    expand,
    gather,
    group_norm,
    l2_norm,
    layer_norm,
    matmul,
    movement,
    mul,
    pad,
    pool,
    prelu,
    reduce,
    resize,
    rms_norm,
    slicing,
    softmax,
    space,
    table,
)
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of


class OperatorModule(Protocol):
    """The module-level names of an operator's file."""

    @property
    def ONNX(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def KINDS(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def OPERATORS(self) -> tuple[type[Operator], ...]: ...  # noqa: N802

    @property
    def TYPES(self) -> str: ...  # noqa: N802

    @property
    def LIMITS(self) -> str: ...  # noqa: N802

    def match(self, node: ir.Node, graph: FloatGraph, /) -> Site | Refusal | None:
        """The site that starts at `node`, why there is none, or None: not this module's pattern."""

    def bind(self, site: Site, builder: Builder, /) -> None:
        """Append the integer operators of `site`; QuantizationError where its scales do not fit."""


MODULES: tuple[OperatorModule, ...] = (
    conv,
    deconv,
    attention,
    dense,
    matmul,
    batchnorm,
    add,
    mul,
    prelu,
    table,
    clamp,
    softmax,
    layer_norm,
    rms_norm,
    group_norm,
    l2_norm,
    pool,
    reduce,
    movement,
    concat,
    slicing,
    gather,
    expand,
    pad,
    resize,
    space,
)

_CLASSES: list[type[Operator]] = [constant.Constant]
_CLASSES += [cls for module in MODULES for cls in module.OPERATORS]

OPERATORS: dict[int, type[Operator]] = {cls.CODE: cls for cls in _CLASSES}
"""Number in the graph file -> class."""

BIND: dict[str, Callable[[Site, Builder], None]] = {
    kind: module.bind for module in MODULES for kind in module.KINDS
}
"""Kind of a site -> the function that binds it."""


def _by_onnx_type() -> dict[str, tuple[OperatorModule, ...]]:
    table: dict[str, tuple[OperatorModule, ...]] = {}
    for module in MODULES:
        for op_type in module.ONNX:
            table[op_type] = (*table.get(op_type, ()), module)
    return table


BY_ONNX_TYPE = _by_onnx_type()
"""ONNX operator type (default domain) -> the modules to ask, in order."""

FLOAT_TYPES = (ir.DataType.FLOAT,)


def match(node: ir.Node, graph: FloatGraph) -> Site | Refusal:
    """The NPU operator that starts at `node`, or the sentence that says why there is none."""
    modules = BY_ONNX_TYPE.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
    if not modules:
        return Refusal(f"no NPU lowering for {node.op_type} ({node.domain or 'ai.onnx'})")
    refusal = _unfit_values(node, graph)
    if refusal is not None:
        return refusal
    for module in modules:
        found = module.match(node, graph)
        if isinstance(found, Site):
            return found
        refusal = refusal or found
    return refusal or Refusal(f"this form of {node.op_type} has no NPU lowering")


def bind(site: Site, builder: Builder) -> None:
    """Append the integer operators of `site` to the graph; QuantizationError as in its module."""
    BIND[site.kind](site, builder)


def _unfit_values(node: ir.Node, graph: FloatGraph) -> Refusal | None:
    """Only float32 tensors of known shape with at least one element are quantized."""
    run_time = [v for v in node.inputs if v is not None and graph.constant(v) is None]
    if not run_time:
        return Refusal("all its operands are constant")
    for value in (*run_time[:1], node.outputs[0]):
        if value.dtype is not None and value.dtype not in FLOAT_TYPES:
            return Refusal(f"its tensor {value.name} is {value.dtype.name.lower()}, not float")
    for value in (*run_time, *node.outputs):
        if value.shape is None or not value.shape.is_static():
            return Refusal(f"the shape of its tensor {value.name} is not known")
        if 0 in shape_of(value):
            return Refusal(f"its tensor {value.name} has no elements")
        if not shape_of(value):
            return Refusal(f"its tensor {value.name} is a scalar")
    return None


class Support(NamedTuple):
    """A row of SUPPORTED_OPS.md."""

    onnx: str
    operators: tuple[str, ...]
    types: str
    limits: str


def support_table() -> list[Support]:
    """One row for each ONNX operator and module that lowers it, in alphabetical order."""
    return sorted(
        Support(op_type, tuple(c.__name__ for c in module.OPERATORS), module.TYPES, module.LIMITS)
        for module in MODULES
        for op_type in module.ONNX
    )
