"""Elementwise operators that together compute a named function become its one node.

    x * (1 + Erf(x / sqrt(2))) = 2 Gelu(x)
    x * (1 + Tanh(sqrt(2 / pi) (x + 0.044715 x**3))) = 2 Gelu(x; approximate = tanh)
    x * Tanh(Softplus(x)) = Mish(x)                Softplus(x) = Log(1 + Exp(x))
    x * Clip(x + 3, 0, 6) = 6 HardSwish(x)         x * HardSigmoid(x; 1/6, 1/2) = HardSwish(x)
    x * Sigmoid(k x) = SiLU(k x) / k               SiLU(x) = x / (1 + Exp(-x)) = x * Sigmoid(x)

whatever the spelling: the function is recognised by its values on a grid (importer/pointwise.py).
Factors that are left become a Mul by a scalar, which later passes fold.  SiLU is written as Sigmoid
and Mul.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tilewright.importer import pointwise
from tilewright.importer.edit import Attribute, Editor, NearMiss, PassResult
from tilewright.importer.graphs import scalar_of
from tilewright.importer.pointwise import Float64, Part

NAME = "named_function"

# Symmetric; no point at a seam of the hard functions, nor at zero, where some spellings divide.
_GRID = np.linspace(-9.7, 9.7, 80)

# Constants in the file are rounded to float32, some to six digits.
_TOLERANCE = 2e-6
_NEAR = 1e-2


@dataclass(frozen=True)
class _Function:
    """A named function: its node, and the operators without which a part cannot be it."""

    op_type: str
    attributes: dict[str, Attribute]
    formula: Callable[[Float64], Float64]
    marks: frozenset[str]


_GATES = frozenset({"Clip", "HardSigmoid"})

_FUNCTIONS = (
    _Function("Gelu", {"approximate": "none"}, pointwise.gelu, frozenset({"Erf"})),
    _Function(
        "Gelu", {"approximate": "tanh"}, pointwise.tanh_gelu, frozenset({"Tanh", "Exp", "Sigmoid"})
    ),
    _Function("Mish", {}, pointwise.mish, frozenset({"Tanh", "Exp"})),
    _Function("HardSwish", {}, pointwise.hard_swish, _GATES),
    _Function("SiLU", {}, pointwise.silu, frozenset({"Sigmoid", "Exp"})),
    _Function("Sigmoid", {}, pointwise.sigmoid, frozenset({"Exp"})),
    _Function("Softplus", {}, pointwise.softplus, frozenset({"Exp", "Softplus"})),
)

_MARKS = frozenset[str]().union(*(function.marks for function in _FUNCTIONS))


@dataclass(frozen=True)
class _Match:
    """The part computes `after * function(before * x)`."""

    part: Part
    function: _Function
    before: float = 1.0
    after: float = 1.0


def run(model: ir.Model) -> PassResult:
    editor = Editor(model)
    position = pointwise.positions(model.graph)
    changes = 0
    misses: list[NearMiss] = []
    for node in list(model.graph):
        if node.graph is None or node.domain != "" or not _may_end_a_function(node):
            continue
        match = _match(node, position)
        if isinstance(match, _Match):
            changes += _write(editor, node, match)
        elif match is not None:
            misses.append(NearMiss.at(node, NAME, match))
    return PassResult(NAME, changes, tuple(misses))


def _may_end_a_function(node: ir.Node) -> bool:
    """A multiple of a function is found at the function itself."""
    if node.op_type in ("Reciprocal", "Log", "Where"):
        return True
    if node.op_type not in ("Mul", "Div", "Add", "Sub"):
        return False
    return node.op_type != "Mul" or all(scalar_of(value) is None for value in node.inputs)


def _match(node: ir.Node, position: dict[ir.Node, int]) -> _Match | str | None:
    near: str | None = None
    for part in pointwise.parts_ending_at(node, position):
        marks = _MARKS & {inner.op_type for inner in part.nodes}
        if len(part.nodes) < 2 or not marks:
            continue
        values = part(_GRID)
        if not np.isfinite(values).all():
            continue
        for function in _FUNCTIONS:
            if not marks & function.marks:
                continue
            factors = _factors(values, function)
            if factors is None:
                continue
            before, after = factors
            wrong = _distance(values, after * function.formula(before * _GRID))
            if wrong <= _TOLERANCE:
                return _Match(part, function, before, after)
            if wrong <= _NEAR:
                near = near or f"its function differs from {_title(function)} by up to {wrong:.1g}"
    return near


def _factors(values: Float64, function: _Function) -> tuple[float, float] | None:
    """The positive factors of `values = after * function(before * x)`, or None."""
    if function.op_type in ("Sigmoid", "Softplus"):
        return 1.0, 1.0
    if function.op_type != "SiLU":
        after = float(values[-1] / function.formula(_GRID[-1:])[0])
        return (1.0, _rounded(after)) if after > 0 else None
    # f(x) = c x sigmoid(k x): f(x) - f(-x) = c x and f(x) / (c x) = sigmoid(k x).
    middle = len(_GRID) // 2 + 4
    x, value, mirrored = (float(v) for v in (_GRID[middle], values[middle], values[-1 - middle]))
    gated = value - mirrored
    if gated <= 0 or not 0.5 < value / gated < 1.0:
        return None
    before = _rounded(math.log(value / -mirrored) / x)
    return before, _rounded(gated / (x * before))


def _rounded(factor: float) -> float:
    """1 and 2 exactly, where the file's constants allow it."""
    for exact in (1.0, 2.0):
        if math.isclose(factor, exact, rel_tol=_TOLERANCE):
            return exact
    return factor


def _distance(values: Float64, wanted: Float64) -> float:
    """Largest difference, relative to the largest value."""
    return float(np.abs(values - wanted).max() / np.abs(wanted).max())


def _title(function: _Function) -> str:
    spelling = function.attributes.get("approximate")
    return f"{function.op_type} (tanh)" if spelling == "tanh" else function.op_type


def _write(editor: Editor, node: ir.Node, match: _Match) -> bool:
    part, function = match.part, match.function
    data, sources = part.source, list(part.nodes)
    if function.op_type == "SiLU" and match.before == match.after == 1.0:
        canonical = [inner.op_type for inner in part.nodes] == ["Sigmoid", "Mul"]
        if canonical and part.nodes[0].inputs[0] is data:
            return False
    data = _scaled(editor, data, match.before, node, sources)
    if function.op_type == "SiLU":
        gate = editor.emit("Sigmoid", [data], before=node, sources=sources)[0]
        result = editor.emit("Mul", [data, gate], before=node, sources=sources)[0]
    else:
        result = editor.emit(
            function.op_type, [data], function.attributes, before=node, sources=sources
        )[0]
    result = _scaled(editor, result, match.after, node, sources)
    return editor.replace(node.outputs[0], result)


def _scaled(
    editor: Editor, value: ir.Value, factor: float, before: ir.Node, sources: list[ir.Node]
) -> ir.Value:
    if factor == 1.0 or value.dtype is None:
        return value
    constant = editor.constant(np.asarray(factor, value.dtype.numpy()), f"{before.name}_factor")
    return editor.emit("Mul", [value, constant], before=before, sources=sources)[0]
