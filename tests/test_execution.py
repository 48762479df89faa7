"""Cutting the host graph into steps, and running them in order."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.container import DOMAIN, ISLAND_OP, Artifact, Container
from tilewright.errors import ArtifactError, DataError
from tilewright.execution import Execution, Values, make_plan

X = np.arange(4, dtype=np.float32).reshape(1, 4)


def model(nodes: list[onnx.NodeProto], outputs: list[str], names: list[str]) -> Container:
    value = helper.make_tensor_value_info
    constant = numpy_helper.from_array(np.full((1, 4), 10, np.float32), "ten")
    graph = helper.make_graph(
        nodes,
        "host",
        [value("x", TensorProto.FLOAT, [1, 4])],
        [value(o, TensorProto.FLOAT, [1, 4]) for o in outputs],
        [constant],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Container(proto, tuple(Artifact(n, b"", {}) for n in names), {"target": "cpu"})


def island(name: str, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    return helper.make_node(ISLAND_OP, inputs, outputs, name, domain=DOMAIN)


def sandwich() -> Container:
    """x -> CPU add ten -> island doubles -> CPU add ten, abs -> y; the middle value leaves too."""
    nodes = [
        helper.make_node("Add", ["x", "ten"], ["a"]),
        island("npu0", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Add", ["c", "ten"], ["y"]),
    ]
    return model(nodes, ["y", "b"], ["npu0"])


def double(values: Values) -> Values:
    return {"b": 2 * values["a"]}


def test_steps_alternate_and_give_the_model() -> None:
    plan = make_plan(sandwich())
    assert [s.island for s in plan.steps] == [None, "npu0", None]
    values = Execution(plan, {"npu0": double}).run({"x": X})
    np.testing.assert_array_equal(values["b"], 2 * (X + 10))
    np.testing.assert_array_equal(values["y"], 10 - 2 * (X + 10))


def test_given_values_replace_the_cpu_nodes() -> None:
    plan = make_plan(sandwich())
    first = Execution(plan, {"npu0": double}).run({"x": X})
    given = first | {"a": np.ones((1, 4), np.float32)}
    again = Execution(plan, {"npu0": double}).run({"x": X}, given)
    np.testing.assert_array_equal(again["b"], np.full((1, 4), 2))
    np.testing.assert_array_equal(again["y"], first["y"])


def test_an_island_may_read_a_constant() -> None:
    nodes = [island("npu0", ["x", "ten"], ["y"])]
    plan = make_plan(model(nodes, ["y"], ["npu0"]))
    values = Execution(plan, {"npu0": lambda v: {"y": v["x"] + v["ten"]}}).run({"x": X})
    np.testing.assert_array_equal(values["y"], X + 10)


def test_values_captured_by_a_subgraph_reach_it() -> None:
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["b", "x"], [f"{name}_out"])],
            name,
            [],
            [value(f"{name}_out", TensorProto.FLOAT, [1, 4])],
        )
        for name, op in (("then", "Add"), ("else", "Sub"))
    }
    nodes = [
        island("npu0", ["x"], ["b"]),
        helper.make_node("ReduceMax", ["b"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["positive"], to=TensorProto.BOOL),
        helper.make_node("If", ["positive"], ["y"], **branches),
    ]
    plan = make_plan(model(nodes, ["y"], ["npu0"]))
    assert plan.steps[1].inputs == ("b", "x")
    values = Execution(plan, {"npu0": lambda v: {"b": v["x"] * 3}}).run({"x": X})
    np.testing.assert_array_equal(values["y"], 4 * X)


@pytest.mark.parametrize(
    ("feeds", "code"),
    [
        ({}, "TW-1231"),
        ({"x": X.astype(np.float64)}, "TW-1232"),
        ({"x": X[:, :3]}, "TW-1232"),
        ({"x": X, "xx": X}, "TW-1230"),
    ],
)
def test_wrong_feeds_are_named(feeds: Values, code: str) -> None:
    with pytest.raises(DataError) as caught:
        Execution(make_plan(sandwich()), {"npu0": double}).run(feeds)
    assert caught.value.code == code


def test_an_island_without_executor_is_refused() -> None:
    with pytest.raises(ArtifactError, match="npu0"):
        Execution(make_plan(sandwich()), {})


def test_a_value_that_nothing_makes_is_damage() -> None:
    with pytest.raises(ArtifactError, match="'lost'"):
        make_plan(model([island("npu0", ["lost"], ["y"])], ["y"], ["npu0"]))


def test_an_input_of_unknown_type_is_damage() -> None:
    broken = sandwich()
    broken.host.graph.input[0].type.tensor_type.elem_type = 0
    with pytest.raises(ArtifactError, match="'x'"):
        make_plan(broken)
