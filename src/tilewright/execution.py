"""Running a compiled model: islands through a chosen executor, CPU nodes through onnxruntime.

The host graph is cut into steps, islands and runs of CPU nodes between them.  Whoever executes the
islands gets the same float values at their borders; with `given`, even the CPU nodes' results are
taken from an earlier run, so that executors can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.container import DOMAIN, Container
from tilewright.errors import ArtifactError, DataError, nearest
from tilewright.inference import InferenceSession

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]
Values = dict[str, Array]
IslandRunner = Callable[[Values], Values]
"""Float values of an island's inputs by ONNX name -> float values of its outputs."""


@dataclass(frozen=True)
class Port:
    """An input or output of the model, in onnxruntime's terms.

    Attributes:
        type: for instance "tensor(float)".
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def type(self) -> str:
        return f"tensor({_ORT_TYPES.get(self.dtype.name, self.dtype.name)})"


_ORT_TYPES = {"float32": "float", "float64": "double", "bool_": "bool"}


@dataclass(frozen=True)
class Step:
    """A part of the host graph that runs at once.

    Attributes:
        island: name of the island, or None for a run of CPU nodes.
        model: the CPU nodes as a model of their own.
    """

    island: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    model: onnx.ModelProto | None


@dataclass(frozen=True)
class Plan:
    """The steps of a compiled model in execution order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: Values
    steps: tuple[Step, ...]


def make_plan(container: Container) -> Plan:
    """Cut the host graph into islands and runs of CPU nodes.

    Raises:
        ArtifactError: the file is damaged: a value of unknown type, or one that nothing makes.
    """
    import onnx.numpy_helper

    model = container.host
    graph = model.graph
    constants = {t.name: t for t in graph.initializer}
    steps = []
    chunks = list(_chunks(graph.node))
    wanted = {o.name for o in graph.output}
    for chunk in reversed(chunks):
        made = {name for node in chunk for name in node.output if name}
        outputs = tuple(sorted(made & wanted))
        reads = _reads(chunk)
        if chunk[0].domain == DOMAIN:
            node = chunk[0]
            steps.append(Step(node.name, tuple(node.input), tuple(node.output), None))
        else:
            inputs = tuple(sorted(reads - made - constants.keys()))
            part = _sub_model(model, chunk, inputs, outputs, reads & constants.keys())
            steps.append(Step(None, inputs, outputs, part))
        wanted |= reads - made
    direct = wanted & constants.keys()
    taken = tuple(_port(v) for v in graph.input if v.name not in constants)
    lost = wanted - direct - {p.name for p in taken} - {n for s in steps for n in s.outputs}
    if lost:
        raise ArtifactError(
            f"nothing makes its value {min(lost)!r}", fix="build it again", code="TW-1302"
        )
    return Plan(
        taken,
        tuple(_port(v) for v in graph.output),
        {name: onnx.numpy_helper.to_array(constants[name]) for name in sorted(direct)},
        tuple(reversed(steps)),
    )


def _chunks(nodes: Sequence[onnx.NodeProto]) -> Iterator[list[onnx.NodeProto]]:
    run: list[onnx.NodeProto] = []
    for node in nodes:
        if node.domain == DOMAIN:
            if run:
                yield run
            yield [node]
            run = []
        else:
            run.append(node)
    if run:
        yield run


def _reads(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Every name that the nodes read, also from inside their subgraphs."""
    names: set[str] = set()
    for node in nodes:
        names |= {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                local = {i.name for i in inner.input} | {t.name for t in inner.initializer}
                local |= {name for n in inner.node for name in n.output}
                names |= (_reads(inner.node) | {o.name for o in inner.output}) - local
    return names


def _sub_model(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    constants: set[str],
) -> onnx.ModelProto:
    import onnx

    known = {v.name: v for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    part = onnx.ModelProto(ir_version=model.ir_version)
    part.opset_import.extend(o for o in model.opset_import if o.domain != DOMAIN)
    part.functions.extend(model.functions)
    part.graph.name = "cpu"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(t for t in model.graph.initializer if t.name in constants)
    for name in inputs:
        value = known.get(name)
        if value is None:  # an island's output: float by definition, its shape is not needed
            value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        part.graph.input.append(value)
    for name in outputs:
        part.graph.output.append(known.get(name, onnx.ValueInfoProto(name=name)))
    return part


def _port(value: onnx.ValueInfoProto) -> Port:
    import onnx

    tensor = value.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    except KeyError as error:
        raise ArtifactError(
            f"the type of {value.name!r} is not known", fix="build it again", code="TW-1302"
        ) from error
    return Port(value.name, shape, dtype)


class Execution:
    """A plan with executors: runs as often as wanted.

    Args:
        islands: island name -> what runs it.
        threads: of onnxruntime for the CPU nodes; 0 leaves it to onnxruntime.
    """

    def __init__(
        self, plan: Plan, islands: Mapping[str, IslandRunner], *, threads: int = 0
    ) -> None:
        missing = [s.island for s in plan.steps if s.island and s.island not in islands]
        if missing:
            raise ArtifactError(f"no executor for {missing[0]}", code="TW-1305")
        self.plan = plan
        self.islands = islands
        self._sessions = {
            i: InferenceSession(step.model.SerializeToString(), threads=threads)
            for i, step in enumerate(plan.steps)
            if step.model
        }

    def run(self, feeds: Mapping[str, Array], given: Mapping[str, Array] | None = None) -> Values:
        """Every value at a step's border, the model's outputs among them.

        Args:
            feeds: input name -> array.
            given: values of an earlier run; CPU nodes are not run but taken from it.

        Raises:
            DataError: a missing or unknown input, a wrong shape or type.
        """
        values = self._checked(feeds) | self.plan.constants
        for index, step in enumerate(self.plan.steps):
            inputs = {name: values[name] for name in step.inputs}
            if step.island is not None:
                values |= self.islands[step.island](inputs)
            elif given is not None:
                values |= {name: given[name] for name in step.outputs}
            else:
                results = self._sessions[index].run(step.outputs, inputs)
                values |= dict(zip(step.outputs, results, strict=True))
        return values

    def _checked(self, feeds: Mapping[str, Array]) -> Values:
        ports = {p.name: p for p in self.plan.inputs}
        for name in feeds:
            if name not in ports:
                fix = nearest(name, ports)
                raise DataError(f"the model has no input {name!r}", fix=fix, code="TW-1230")
        values: Values = {}
        for name, port in ports.items():
            if name not in feeds:
                raise DataError(
                    f"no value for input {name!r}",
                    fix=f"give {port.type} {list(port.shape)}",
                    code="TW-1231",
                )
            value = np.asarray(feeds[name])
            if value.dtype != port.dtype or value.shape != port.shape:
                raise DataError(
                    f"input {name!r} was given {value.dtype} {list(value.shape)}",
                    fix=f"give {port.dtype} {list(port.shape)}",
                    code="TW-1232",
                )
            values[name] = value
        return values
