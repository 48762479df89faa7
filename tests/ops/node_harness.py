"""One ONNX node: matched, bound, run by `reference`, and run by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import tile_harness
from onnx import TensorProto, helper, numpy_helper

from tilewright import graph as graphs
from tilewright import numerics
from tilewright.graph import DType, Encoding, Graph
from tilewright.ops.builder import Builder
from tilewright.ops.pattern import FloatGraph, Refusal, Site, shape_of

EXACT = Encoding(DType.S16, 1.0, 0)
"""Small integers are themselves."""


def model_of(
    op_type: str,
    inputs: Mapping[str, Sequence[int]],
    operands: Sequence[Any] = (),
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node: run-time inputs by shape, then constant operands (None: absent)."""
    constants = [
        numpy_helper.from_array(np.asarray(v), f"c{k}")
        for k, v in enumerate(operands)
        if v is not None
    ]
    names = [*inputs, *("" if v is None else f"c{k}" for k, v in enumerate(operands))]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], "n", **attributes)
    body = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in node.output],
        constants,
    )
    made = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)


def with_shapes(model: onnx.ModelProto, shapes: Sequence[Sequence[int]]) -> onnx.ModelProto:
    """Outputs whose shape onnx cannot infer, stated."""
    for value, shape in zip(model.graph.output, shapes, strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape))
    return model


def matched(module: ModuleType, model: onnx.ModelProto) -> Site | Refusal | None:
    graph = ir.from_proto(model).graph
    return module.match(graph[0], FloatGraph(graph))  # type: ignore[no-any-return]


def lowered(
    module: ModuleType,
    model: onnx.ModelProto,
    encodings: Mapping[str, Encoding],
    permutations: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """The integer graph of the model's one node; inputs may be stored in any order."""
    graph = ir.from_proto(model).graph
    float_graph = FloatGraph(graph, encodings)
    builder = Builder(float_graph)
    inputs = []
    for value in graph.inputs:
        border = builder.add_input(value)
        wanted = (permutations or {}).get(value.name or "")
        if wanted is not None:
            moved = builder.permuted(builder.operand(value), wanted)
            builder.alias(value, moved)
        inputs.append(border)
    site = module.match(graph[0], float_graph)
    assert isinstance(site, Site), site
    assert site.kind in module.KINDS
    builder.begin(site)
    module.bind(site, builder)
    for value in graph.outputs:
        operand = builder.operand(value)
        stored = tuple(shape_of(value)[p] for p in operand.permutation)
        assert operand.type.shape == stored
    made = builder.graph("g", inputs, [builder.output(v) for v in graph.outputs])
    graphs.verify(made)
    return made


def run(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Codes of the outputs in ONNX order, from codes of the inputs in ONNX order."""
    values = {
        b.tensor: np.ascontiguousarray(feeds[b.name].transpose(b.permutation)) for b in graph.inputs
    }
    for node in graph.nodes:
        arrays = [values[i] for i in node.inputs]
        made = node.op.reference(arrays, graph.types(node.inputs), graph.types(node.outputs))
        for name, array in zip(node.outputs, made, strict=True):
            t = graph.tensors[name]
            assert array.shape == t.shape and array.dtype == t.dtype.numpy
            values[name] = array
    return {b.name: values[b.tensor].transpose(np.argsort(b.permutation)) for b in graph.outputs}


def check_graph_tiles(graph: Graph, feeds: Mapping[str, Any], rng: np.random.Generator) -> None:
    """Every node of the graph, tile by tile."""
    values = {
        b.tensor: np.ascontiguousarray(feeds[b.name].transpose(b.permutation)) for b in graph.inputs
    }
    for node in graph.nodes:
        arrays, types = [values[i] for i in node.inputs], graph.types(node.inputs)
        (out,) = graph.types(node.outputs)
        tile_harness.check_tiles(node.op, arrays, types, out, rng)  # type: ignore[arg-type]
        (values[node.outputs[0]],) = node.op.reference(arrays, types, [out])


def onnxruntime_run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def golden(name: str) -> list[dict[str, Any]]:
    """The cases of a file of golden vectors."""
    cases: dict[int, dict[str, Any]] = {}
    with np.load(Path(__file__).parent.parent / "vectors" / f"{name}.npz") as archive:
        for key in archive.files:
            if "/" in key:
                case, field = key.split("/")
                cases.setdefault(int(case), {})[field] = archive[key]
        assert len(cases) == archive["cases"]
    return list(cases.values())


def case_encoding(case: Mapping[str, Any], name: str) -> Encoding:
    dtype = next(d for d in DType if d.numpy == case[name].dtype)
    return Encoding(dtype, float(case[f"{name}_scale"]), int(case[f"{name}_zero_point"]))


def random_codes(encoding: Encoding, shape: Sequence[int], rng: np.random.Generator) -> Any:
    lo, hi = encoding.dtype.range
    return rng.integers(lo, hi + 1, shape).astype(encoding.dtype.numpy)


def compare(
    module: ModuleType,
    model: onnx.ModelProto,
    encodings: Mapping[str, Encoding],
    rng: np.random.Generator,
    permutations: Mapping[str, tuple[int, ...]] | None = None,
    steps: float = 0.0,
) -> Graph:
    """Lower the model and compare with onnxruntime on the dequantized inputs.

    Args:
        steps: largest distance allowed, in output steps from the float result; 0 asks for equality.
    """
    graph = lowered(module, model, encodings, permutations)
    codes = {
        i.name: random_codes(
            encodings[i.name], [d.dim_value for d in i.type.tensor_type.shape.dim], rng
        )
        for i in model.graph.input
    }
    real = {
        name: numerics.dequantize(c, encodings[name].scale, encodings[name].zero_point)
        for name, c in codes.items()
    }
    expected = onnxruntime_run(model, real)
    got = run(graph, codes)
    for border in graph.outputs:
        _, scale, zero = graph.tensors[border.tensor].encoding
        if steps == 0:
            value = numerics.dequantize(got[border.name], scale, zero)
            np.testing.assert_array_equal(value, expected[border.name])
        else:
            lo, hi = graph.tensors[border.tensor].dtype.range
            ideal = np.clip(expected[border.name].astype(np.float64) / scale + zero, lo, hi)
            assert np.abs(got[border.name] - ideal).max() <= steps
    check_graph_tiles(graph, codes, rng)
    return graph
