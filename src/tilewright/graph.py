"""The integer graph: what to compute, with every number fixed.

Operators of `docs/arithmetic.md` on typed tensors, channels last.  A graph is what the reference
executes, what the compiler turns into a program and what the graph file stores for C.  This module
knows operators only as records: their meaning stands in `tilewright.ops`.

Invariants, proven by `verify`: names are unique, every tensor is written once and before it is
read, types agree with what each operator infers.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.errors import ArtifactError
from tilewright.numerics import IntRange

Array = npt.NDArray[Any]


class DType(enum.IntEnum):
    """Types of stored tensors and constants; the numbers are those of the file formats."""

    U8 = 0
    S8 = 1
    S16 = 2
    S32 = 3
    S64 = 4

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(("<u1", "<i1", "<i2", "<i4", "<i8")[self])

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @property
    def range(self) -> IntRange:
        """Codes that results take: s16 stays symmetric (section 1 of the arithmetic)."""
        return _RANGES[self]

    @property
    def is_8_bit(self) -> bool:
        return self in (DType.U8, DType.S8)

    @property
    def text(self) -> str:
        return self.name.lower()


_RANGES = {
    DType.U8: IntRange(0, 255),
    DType.S8: IntRange(-128, 127),
    DType.S16: IntRange(-32767, 32767),
    DType.S32: IntRange(-(2**31), 2**31 - 1),
    DType.S64: IntRange(-(2**63), 2**63 - 1),
}


class Encoding(NamedTuple):
    """How codes stand for reals: `real = scale * (code - zero_point)`; scale is a float32 value."""

    dtype: DType
    scale: float
    zero_point: int


@dataclasses.dataclass(frozen=True)
class TensorType:
    """A tensor of the integer graph, in stored (channels-last) axis order."""

    dtype: DType
    shape: tuple[int, ...]
    scale: float
    zero_point: int

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.dtype, self.scale, self.zero_point)

    @functools.cached_property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    @property
    def reach(self) -> int:
        """The largest |code - zero_point|: what accumulator bounds are proven from."""
        lo, hi = self.dtype.range
        return max(self.zero_point - lo, hi - self.zero_point)

    def text(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.dtype.text}[{shape}] scale={self.scale!r} zero={self.zero_point}"


# Operators as records.


@dataclasses.dataclass(frozen=True)
class Attribute:
    """Metadata of an integer attribute; `count` is None for a scalar."""

    doc: str
    count: int | None = None


@dataclasses.dataclass(frozen=True)
class ConstantField:
    """Metadata of a constant; `axes` names its axes, outermost first."""

    doc: str
    axes: tuple[str, ...]
    optional: bool = False


def attribute(doc: str, *, count: int | None = None, default: Any = dataclasses.MISSING) -> Any:
    """Declare an integer attribute (or a tuple of `count` of them; -1 for any number)."""
    return dataclasses.field(default=default, metadata={"attribute": Attribute(doc, count)})


def constant(doc: str, *, axes: tuple[str, ...], optional: bool = False) -> Any:
    """Declare a constant array; an optional one is None when absent."""
    return dataclasses.field(metadata={"constant": ConstantField(doc, axes, optional)})


@dataclasses.dataclass(frozen=True, eq=False)
class Operator(ABC):
    """One operator with its parameters; subclasses are the files of `tilewright.ops`.

    Fields are declared with `attribute` and `constant`; writer, reader, text form, C header and
    documentation are derived from those declarations.
    """

    CODE: ClassVar[int]
    """Number in the graph file; never reused."""

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType], where: str) -> tuple[tuple[int, ...], ...]:
        """Shapes of the outputs.

        Raises:
            QuantizationError: types that the arithmetic does not define, or an accumulator bound
                that cannot be proven; `where` names the operator.
        """

    @abstractmethod
    def reference(
        self, inputs: Sequence[Array], types: Sequence[TensorType], out: Sequence[TensorType]
    ) -> list[Array]:
        """The exact result, as plain as the formula; arrays of the tensors' own dtypes."""

    @classmethod
    def attributes(cls) -> dict[str, Attribute]:
        return _declared(cls, "attribute")

    @classmethod
    def constants(cls) -> dict[str, ConstantField]:
        return _declared(cls, "constant")

    def constant_arrays(self) -> dict[str, Array]:
        """The constants that are present, in declaration order."""
        values = {name: getattr(self, name) for name in self.constants()}
        return {name: v for name, v in values.items() if v is not None}


@functools.cache
def _declared(operator: type[Operator], kind: str) -> dict[str, Any]:
    """Field name -> metadata of the fields declared as `kind`, in order."""
    return {f.name: f.metadata[kind] for f in dataclasses.fields(operator) if kind in f.metadata}


class Node(NamedTuple):
    """An operator at its place in the graph; `source` lists the ONNX nodes that it stands for."""

    name: str
    op: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Border:
    """A graph input or output: the float ONNX tensor on one side, a stored tensor on the other.

    Args:
        name: the ONNX value.
        tensor: the stored tensor.
        shape: the ONNX shape.
        permutation: stored axis i holds ONNX axis `permutation[i]`.
        pixel_table: for an input with built-in preprocessing, codes [256, channels] of the stored
            type; the border then takes a u8 picture, NHWC, and looks each byte up.
        pixel_channels: source channel of each stored channel (BGR models swap them).
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    permutation: tuple[int, ...]
    pixel_table: Array | None = None
    pixel_channels: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in execution order; `tensors` holds every tensor's type by name."""

    name: str
    tensors: dict[str, TensorType]
    nodes: tuple[Node, ...]
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]

    def types(self, names: Sequence[str]) -> list[TensorType]:
        return [self.tensors[n] for n in names]

    @functools.cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """Tensor name -> indices of the nodes that read it."""
        users: dict[str, list[int]] = {name: [] for name in self.tensors}
        for i, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                users[name].append(i)
        return {name: tuple(v) for name, v in users.items()}


def verify(graph: Graph) -> None:
    """Prove the invariants of the module docstring.

    Raises:
        ArtifactError: naming the node and what does not hold.
    """
    written = {b.tensor for b in graph.inputs}
    for node in graph.nodes:
        for name in node.inputs:
            if name not in written:
                raise ArtifactError(
                    f"graph {graph.name}: {node.name} reads {name} before it is written"
                )
        shapes = node.op.infer(graph.types(node.inputs), node.name)
        if len(shapes) != len(node.outputs):
            raise ArtifactError(f"graph {graph.name}: {node.name} has {len(node.outputs)} outputs")
        for name, shape in zip(node.outputs, shapes, strict=True):
            if name in written:
                raise ArtifactError(f"graph {graph.name}: {name} is written twice")
            if graph.tensors[name].shape != shape:
                stated = graph.tensors[name].shape
                raise ArtifactError(
                    f"graph {graph.name}: {name} is {stated}, {node.name} gives {shape}"
                )
            written.add(name)
    unwritten = [b.tensor for b in graph.outputs if b.tensor not in written]
    if unwritten or set(graph.tensors) != written:
        raise ArtifactError(
            f"graph {graph.name}: {(unwritten or set(graph.tensors) ^ written)} not written"
        )
    names = [n.name for n in graph.nodes]
    if len(set(names)) != len(names):
        raise ArtifactError(f"graph {graph.name}: node names are not unique")


def text(graph: Graph) -> str:
    """The graph as text: one line a node, constants by shape; for people and golden files."""
    lines = [f"graph {graph.name}"]
    lines += [
        f"  input {b.name} -> {b.tensor}: {graph.tensors[b.tensor].text()}" for b in graph.inputs
    ]
    for node in graph.nodes:
        parts = [f"{k}={_plain(getattr(node.op, k))}" for k in node.op.attributes()]
        parts += [
            f"{k}={v.dtype.name}[{'x'.join(map(str, v.shape))}]"
            for k, v in node.op.constant_arrays().items()
        ]
        outs = ", ".join(f"{o}: {graph.tensors[o].text()}" for o in node.outputs)
        lines.append(
            f"  {node.name} = {type(node.op).__name__}({', '.join(node.inputs)}) {' '.join(parts)}"
        )
        lines.append(f"    -> {outs}")
    lines += [f"  output {b.name} <- {b.tensor}" for b in graph.outputs]
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
