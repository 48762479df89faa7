"""Small models for the importer's tests, and the one comparison that all of them use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from tilewright.importer import Imported, compare_outputs, import_model, verify

FLOAT = TensorProto.FLOAT


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return rng(seed).standard_normal(shape).astype(np.float32)


def make_proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
    types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; outputs are declared as float of unknown shape, `types` overrides element types."""
    types = types or {}
    graph = helper.make_graph(
        list(nodes),
        "net",
        [
            helper.make_tensor_value_info(name, types.get(name, FLOAT), list(shape))
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, types.get(name, FLOAT), None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 19 else 10)


def make_model(*args: Any, **kwargs: Any) -> ir.Model:
    return ir.serde.deserialize_model(make_proto(*args, **kwargs))


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """`node("Conv", "x w", "y", pads=[1, 1, 1, 1])`; "-" is an omitted input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(
        op_type, names, outputs.split(), name=f"n_{outputs.split()[0]}", **attributes
    )


def random_feeds(model: ir.Model, seed: int = 0) -> dict[str, np.ndarray]:
    generator = rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        shape = tuple(int(dim) for dim in value.shape)
        kind = value.dtype.numpy()
        if value.dtype.is_floating_point():
            feeds[value.name] = generator.standard_normal(shape).astype(kind)
        else:
            feeds[value.name] = generator.integers(0, 3, shape).astype(kind)
    return feeds


def ops(model: ir.Model) -> list[str]:
    return [item.op_type for item in model.graph]


def only(model: ir.Model, op_type: str) -> ir.Node:
    found = [item for item in model.graph if item.op_type == op_type]
    assert len(found) == 1, ops(model)
    return found[0]


def attribute(item: ir.Node, name: str) -> Any:
    value = item.attributes[name].value
    return list(value) if isinstance(value, tuple | list) else value


def imported(model: ir.Model, tolerance: float = 1e-5, **kwargs: Any) -> Imported:
    """Import, verify, run the checker, and compare with the original on random inputs."""
    result = import_model(model, **kwargs)
    verify(result.model, "test")
    onnx.checker.check_model(ir.serde.serialize_model(result.model), full_check=True)
    for seed in (0, 1):
        errors = compare_outputs(model, result.model, random_feeds(result.model, seed))
        for name, error in errors.items():
            assert error.max_relative <= tolerance, (name, error, ops(result.model))
    assert [v.name for v in result.model.graph.outputs] == [v.name for v in model.graph.outputs]
    return result


def applied(model: ir.Model, run: Any) -> tuple[ir.Model, int]:
    """Bring the operators to canonical form, then run one pass alone."""
    from tilewright.importer.passes import constants, names, specialise
    from tilewright.importer.verify import verify_structure

    part = model.clone()
    constants.run(part)
    specialise.run(part)
    result = run(part)
    verify_structure(part, result.name)
    names.run(part)
    for seed in (0, 1):
        errors = compare_outputs(model, part, random_feeds(part, seed))
        assert all(error.max_relative <= 1e-5 for error in errors.values()), (errors, ops(part))
    return part, result.changes
