"""What import reports of a model that indices and masks feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.stages import import_stage


def difference(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], folder: Path
) -> float | None:
    """Of the output `y` [1, 4] of a model with the inputs `x` [1, 4] and `integers` [1, 4]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
            helper.make_tensor_value_info("integers", TensorProto.INT64, [1, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    _, found = import_stage(folder / "model.onnx", {}, folder / "optimized.onnx")
    (error,) = found["float_difference"].values()
    return error


def test_a_mask_lets_something_through(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["integers"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "mask"], ["kept"]),
        helper.make_node("ReduceL2", ["kept"], ["length"], axes=[-1], keepdims=1),
        helper.make_node("Div", ["kept", "length"], ["y"]),
    ]
    error = difference(nodes, {}, tmp_path)
    assert error is not None and error < 1e-5


def test_an_index_stays_within_a_table_of_one_row(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "integers"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    error = difference(nodes, {"table": np.ones(1, np.float32)}, tmp_path)
    assert error is not None and error < 1e-5


def test_what_is_not_finite_is_no_number(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["integers"], ["one"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "one"], ["zero"]),
        helper.make_node("Mul", ["x", "zero"], ["kept"]),
        helper.make_node("ReduceL2", ["kept"], ["length"], axes=[-1], keepdims=1),
        helper.make_node("Div", ["kept", "length"], ["y"]),
    ]
    assert difference(nodes, {}, tmp_path) is None
