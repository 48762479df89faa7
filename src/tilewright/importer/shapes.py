"""Free dimensions of a model's inputs, and how they are set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tilewright.errors import ConfigError, ModelError, nearest

# What an input is likely to take, for the option that the error message proposes.
_LIKELY_SIDE = 224
_LIKELY_LENGTH = 128


@dataclass(frozen=True)
class FreeDimension:
    """A dimension of a graph input that the file leaves open.

    Attributes:
        input: name of the graph input.
        axis: position in its shape.
        name: the file's symbol for it, or "" when it has none.
    """

    input: str
    axis: int
    name: str

    def __str__(self) -> str:
        return f"{self.input}[{self.axis}]" + (f" ({self.name})" if self.name else "")


def tensor_inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs that a caller feeds: graph inputs that have no initializer (old files do)."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def free_dimensions(model: ir.Model) -> list[FreeDimension]:
    """Dimensions of the inputs without a number >= 1, in order; 0 and -1 count as unknown.

    Raises:
        ModelError: an input declares no rank at all.
    """
    free = []
    for value in tensor_inputs(model):
        if value.shape is None:
            raise ModelError(
                f"input {value.name!r} declares no shape",
                fix="export the model with at least the rank of each input",
                code="TW-1106",
            )
        for axis, dim in enumerate(value.shape.dims):
            if isinstance(dim, int):
                if dim < 1:
                    free.append(FreeDimension(value.name or "", axis, ""))
            else:
                free.append(FreeDimension(value.name or "", axis, dim.value or ""))
    return free


def fix_shapes(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the free dimensions of the inputs, in place.

    A symbol that one given shape binds is bound in the inputs that were not given too.

    Args:
        model: the model; must be the caller's own copy.
        shapes: input name -> whole shape; dimensions that the file fixes must agree.

    Raises:
        ConfigError: unknown input, wrong rank, a dimension < 1 or one against the file.
        ModelError: dimensions are still free; the message holds the option that sets them.
    """
    inputs = {value.name or "": value for value in tensor_inputs(model)}
    bound: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ConfigError(
                f"--input-shapes names {name!r}, which is no input of the model",
                fix=nearest(name, inputs),
                code="TW-2101",
            )
        bound |= _set(inputs[name], [int(dim) for dim in shape])
    for value in inputs.values():
        if value.shape is not None and value.name not in shapes:
            for axis, dim in enumerate(value.shape.dims):
                if not isinstance(dim, int) and dim.value in bound:
                    _assign(value, axis, bound[dim.value])
    free = free_dimensions(model)
    if free:
        raise _still_free(free, inputs.values())


def _set(value: ir.Value, shape: list[int]) -> dict[str, int]:
    """Write the shape; returns what it binds the symbols to."""
    declared = value.shape
    given = "x".join(str(dim) for dim in shape)
    if declared is not None and declared.rank() != len(shape):
        raise ConfigError(
            f"--input-shapes gives {value.name!r} the shape {given}, but the model declares rank "
            f"{declared.rank()}: {_shown(value)}",
            fix=f"give {declared.rank()} numbers",
            code="TW-2102",
        )
    if any(dim < 1 for dim in shape):
        raise ConfigError(
            f"--input-shapes gives {value.name!r} the shape {given}",
            fix="give numbers of at least 1",
            code="TW-2102",
        )
    bound: dict[str, int] = {}
    if declared is None:
        value.shape = ir.Shape(shape)
        return bound
    for axis, (dim, wanted) in enumerate(zip(declared.dims, shape, strict=True)):
        if isinstance(dim, int) and dim >= 1:
            if dim != wanted:
                raise ConfigError(
                    f"--input-shapes gives {value.name!r} the shape {given}, but the model fixes "
                    f"axis {axis} at {dim}: {_shown(value)}",
                    fix=f"use {dim} there",
                    code="TW-2102",
                )
        elif not isinstance(dim, int) and dim.value and dim.value.isidentifier():
            bound.setdefault(dim.value, wanted)
    value.shape = ir.Shape(shape)
    return bound


def _assign(value: ir.Value, axis: int, number: int) -> None:
    assert value.shape is not None
    dims = list(value.shape.dims)
    dims[axis] = number
    value.shape = ir.Shape(dims)


def _shown(value: ir.Value) -> str:
    assert value.shape is not None
    return "x".join(
        str(dim) if isinstance(dim, int) else (dim.value or "?") for dim in value.shape.dims
    )


def _still_free(free: Sequence[FreeDimension], inputs: Iterable[ir.Value]) -> ModelError:
    open_inputs = {dimension.input for dimension in free}
    proposal = ",".join(
        f"{value.name}:{_proposed(value)}" for value in inputs if value.name in open_inputs
    )
    return ModelError(
        f"the model leaves dimensions open: {', '.join(str(dimension) for dimension in free)}",
        fix=f'set them, for example with --input-shapes "{proposal}"',
        code="TW-1105",
    )


def _proposed(value: ir.Value) -> str:
    """The declared shape with likely numbers in the open places: batch 1, square pictures."""
    assert value.shape is not None
    dims = list(value.shape.dims)
    side = _LIKELY_SIDE if len(dims) >= 4 else _LIKELY_LENGTH
    known = [dim for dim in dims[1:] if isinstance(dim, int) and dim > 4]
    if len(dims) == 4 and known:
        side = known[-1]
    return "x".join(
        str(dim) if isinstance(dim, int) and dim >= 1 else ("1" if axis == 0 else str(side))
        for axis, dim in enumerate(dims)
    )
