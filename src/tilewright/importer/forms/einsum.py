"""Einsum as Transpose, Reshape, ReduceSum, and one MatMul or Mul.

Of two operands, each letter is one of: a batch (in both and in the result), contracted (in both,
not in the result), free (in one and in the result) or summed (in one only).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.importer.forms.site import Site

_ELLIPSIS = "..."
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class _Operand:
    """A value and a letter per axis; sizes are looked up by letter."""

    value: ir.Value
    letters: str


def einsum(site: Site) -> Sequence[ir.Value] | None:
    """Einsum(x[, y]; equation) of known shapes, no letter twice in an operand."""
    shapes = [site.shape(index) for index in range(len(site.node.inputs))]
    equation = site.string_attribute("equation", "").replace(" ", "")
    if len(shapes) not in (1, 2) or any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    parsed = _parse(equation, [len(shape) for shape in known])
    if parsed is None:
        return None
    terms, result = parsed
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, known, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None  # broadcasting of a size 1
    writer = _Writer(site, sizes)
    operands = [_Operand(site.input(i), term) for i, term in enumerate(terms)]
    if len(operands) == 1:
        return [writer.arranged(writer.summed(operands[0], result), result).value]
    first, second = operands
    if site.constant(0) is not None and site.constant(1) is None:
        first, second = second, first
    return [writer.product(first, second, result)]


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str] | None:
    """The letters of each operand and of the result, ellipses spelled out."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks) or any(letter in equation for letter in _ALPHABET):
        return None
    named = [len(term.replace(_ELLIPSIS, "")) for term in terms]
    hidden = [rank - count for rank, count in zip(ranks, named, strict=True)]
    longest = max((h for h, t in zip(hidden, terms, strict=True) if _ELLIPSIS in t), default=0)
    if min(hidden) < 0 or longest > len(_ALPHABET):
        return None
    spelled = []
    for term, count in zip(terms, hidden, strict=True):
        if count and _ELLIPSIS not in term:
            return None
        spelled.append(term.replace(_ELLIPSIS, _ALPHABET[longest - count : longest]))
    if not arrow:
        letters = sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        right = (_ELLIPSIS if _ELLIPSIS in left else "") + "".join(letters)
    result = right.replace(_ELLIPSIS, _ALPHABET[:longest])
    if any(len(set(term)) != len(term) for term in (*spelled, result)):
        return None
    return (spelled, result) if set(result) <= set("".join(spelled)) else None


@dataclass(frozen=True)
class _Writer:
    site: Site
    sizes: dict[str, int]

    def summed(self, operand: _Operand, kept: str) -> _Operand:
        """The operand without the letters that are not kept."""
        axes = [axis for axis, letter in enumerate(operand.letters) if letter not in kept]
        if not axes:
            return operand
        operands = [operand.value, self.site.new_ints(axes, "axes")]
        attributes = {"keepdims": 0, "noop_with_empty_axes": 0}
        value = self.site.emit("ReduceSum", operands, attributes)
        return _Operand(value, "".join(letter for letter in operand.letters if letter in kept))

    def arranged(self, operand: _Operand, letters: str) -> _Operand:
        """The operand with its axes in this order."""
        perm = [operand.letters.index(letter) for letter in letters]
        if perm == sorted(perm):
            return operand
        return _Operand(self.site.emit("Transpose", [operand.value], {"perm": perm}), letters)

    def shaped(self, value: ir.Value, *groups: str | int) -> ir.Value:
        """The value with an axis for each group of letters, or of a given length."""
        dims = [
            group if isinstance(group, int) else math.prod(self.sizes[letter] for letter in group)
            for group in groups
        ]
        return self.site.emit("Reshape", [value, self.site.new_ints(dims, "shape")])

    def product(self, first: _Operand, second: _Operand, result: str) -> ir.Value:
        first = self.summed(first, second.letters + result)
        second = self.summed(second, first.letters + result)
        shared = [letter for letter in first.letters if letter in second.letters]
        batch = "".join(letter for letter in result if letter in shared)
        contracted = "".join(letter for letter in shared if letter not in result)
        rows = "".join(letter for letter in first.letters if letter not in shared)
        columns = "".join(letter for letter in second.letters if letter not in shared)
        if contracted:
            value = self._matmul(first, second, (batch, rows, contracted, columns))
        else:
            value = self._outer(first, second, (batch, rows, columns))
        value = self.shaped(value, *batch, *rows, *columns)
        return self.arranged(_Operand(value, batch + rows + columns), result).value

    def _matmul(
        self, first: _Operand, second: _Operand, letters: tuple[str, str, str, str]
    ) -> ir.Value:
        batch, rows, contracted, columns = letters
        left = self.arranged(first, batch + rows + contracted).value
        right = self.arranged(second, batch + contracted + columns).value
        right = self.shaped(right, *batch, contracted, columns)
        if batch or not rows:
            left = self.shaped(left, *batch, rows, contracted)
        else:
            left = self.shaped(left, *rows, contracted)
        return self.site.emit("MatMul", [left, right])

    def _outer(self, first: _Operand, second: _Operand, letters: tuple[str, str, str]) -> ir.Value:
        batch, rows, columns = letters
        left = self.arranged(first, batch + rows).value
        right = self.arranged(second, batch + columns).value
        if columns:
            left = self.shaped(left, *batch, *rows, *(1,) * len(columns))
        if rows:
            right = self.shaped(right, *batch, *(1,) * len(rows), *columns)
        return self.site.emit("Mul", [left, right])
