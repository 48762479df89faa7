"""Describing models, targets, operators and the environment, without building anything."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tilewright.targets import load_target, target_names

if TYPE_CHECKING:
    import onnx_ir as ir

    from tilewright.importer import NearMiss

Row = dict[str, Any]


@dataclass(frozen=True)
class ModelDescription:
    """What `info` shows.

    Attributes:
        kind: float, quantized or compiled.
        inputs, outputs: name, shape (None: free), dtype, note.
        operators: ONNX operator type -> number of nodes, most frequent first.
        targets: target name -> {nodes_npu, nodes_cpu}; empty while dimensions are free.
        notes: what the user should know or do.
    """

    model: str
    kind: Literal["float", "quantized", "compiled"]
    opset: int
    nodes: int
    producer: str
    inputs: list[Row]
    outputs: list[Row]
    operators: Mapping[str, int]
    free_dimensions: list[Row] = field(default_factory=list)
    targets: dict[str, Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> Row:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def describe(
    path: Path,
    *,
    target: str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> ModelDescription:
    """Look at an ONNX file.

    Args:
        target: only this one; default: every chip.
        input_shapes: for models with free dimensions.

    Raises:
        ModelError: the file is unusable.
        ConfigError: an unknown target.
    """
    from tilewright.importer import free_dimensions, is_quantized, load

    targets = [load_target(n) for n in ([target] if target else target_names())]
    compiled = _compiled(path)
    if compiled is not None:
        return compiled
    model = load(path)
    shapes = dict(input_shapes or {})
    free = [d for d in free_dimensions(model) if d.input not in shapes]
    counts = Counter(node.op_type for graph in model.graphs() for node in graph)
    kind: Literal["float", "quantized"] = "quantized" if is_quantized(model) else "float"
    found = ModelDescription(
        model=path.name,
        kind=kind,
        opset=model.opset_imports.get("", 0),
        nodes=sum(counts.values()),
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        inputs=[_value(v) for v in model.graph.inputs if not v.is_initializer()],
        outputs=[_value(v) for v in model.graph.outputs],
        operators=dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        free_dimensions=[dataclasses.asdict(d) for d in free],
    )
    if free:
        names = ", ".join(str(d) for d in free)
        found.notes.append(f"free dimensions: {names}; set them with --input-shapes to see support")
        return found
    support, misses = _support(path, shapes)
    found.targets.update({target.name: support for target in targets})
    found.notes.extend(f"{miss.rule} left {miss.node}: {miss.reason}" for miss in misses)
    return found


def _value(value: ir.Value) -> Row:
    dims = value.shape.dims if value.shape is not None else ()
    shape = [d if isinstance(d, int) and d > 0 else None for d in dims]
    names = [str(d if isinstance(d, int) else d.value or "?") for d in dims]
    note = "" if None not in shape else f"free: {'x'.join(names)}"
    dtype = value.dtype.name.lower() if value.dtype is not None else "unknown"
    return {"name": value.name, "shape": shape, "dtype": dtype, "note": note}


def _support(path: Path, shapes: Mapping[str, Sequence[int]]) -> tuple[Row, tuple[NearMiss, ...]]:
    """Which nodes of the canonical model run where, on every chip, and what import left."""
    from tilewright.importer import import_model
    from tilewright.ops.pattern import FloatGraph
    from tilewright.quantize.sites import find_sites
    from tilewright.quantize.strip import strip

    imported = import_model(path, input_shapes=shapes)
    model = imported.model
    partition = find_sites(strip(model) if imported.quantized else FloatGraph(model.graph))
    support = {
        "nodes_npu": sum(len(site.nodes) for site in partition.sites),
        "nodes_cpu": [
            {"name": c.node.name, "op": c.node.op_type, "reason": c.reason} for c in partition.cpu
        ],
    }
    return support, imported.near_misses


def _compiled(path: Path) -> ModelDescription | None:
    """The description of a compiled model; None for any other file."""
    from tilewright.container import read_container
    from tilewright.errors import ArtifactError
    from tilewright.execution import make_plan

    try:
        container = read_container(path)
    except ArtifactError:
        return None
    plan = make_plan(container)
    host = container.host
    ports = [
        [{"name": p.name, "shape": list(p.shape), "dtype": str(p.dtype), "note": ""} for p in side]
        for side in (plan.inputs, plan.outputs)
    ]
    counts = Counter(node.op_type for node in host.graph.node)
    notes = [f"compiled for {container.target}, {', '.join(container.modes) or 'this CPU'}"]
    notes += [f"{a.name}: {len(a.graph) >> 10} KiB graph file" for a in container.artifacts]
    return ModelDescription(
        model=path.name,
        kind="compiled",
        opset=next((o.version for o in host.opset_import if o.domain == ""), 0),
        nodes=len(host.graph.node),
        producer=f"{host.producer_name} {container.metadata.get('version', '')}".strip(),
        inputs=ports[0],
        outputs=ports[1],
        operators=dict(counts),
        notes=notes,
    )


def input_shapes_of(path: Path) -> dict[str, list[int | None]]:
    """Declared shape of each input; None where a dimension is free."""
    from tilewright.importer import load

    model = load(path)
    inputs = (_value(v) for v in model.graph.inputs if not v.is_initializer())
    return {row["name"]: row["shape"] for row in inputs}
