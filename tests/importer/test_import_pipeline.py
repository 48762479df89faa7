"""Whole imports: one graph from every opset, determinism, provenance, quantized models."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from importer_nets import imported, make_model, make_proto, node, normal, only, ops, rng
from onnx import TensorProto, helper, numpy_helper

from tilewright.errors import ModelError
from tilewright.importer import SOURCE_KEY, compare_outputs, import_model, is_quantized, verify
from tilewright.importer.verify import verify_structure


def constant(name: str, array) -> onnx.NodeProto:
    return helper.make_node(
        "Constant", [], [name], value=numpy_helper.from_array(np.asarray(array))
    )


def small_net(opset: int) -> ir.Model:
    """Pad, Conv, BatchNormalization, relu6, mean, flatten by shape arithmetic, Gemm, Softmax."""
    positive = np.abs(normal(8, seed=5)) + 0.1
    weights = {
        "w": normal(8, 3, 3, 3),
        "scale": normal(8, seed=1),
        "shift": normal(8, seed=2),
        "mean": normal(8, seed=3),
        "variance": positive,
        "fc": normal(8, 4, seed=4),
        "bias": normal(4, seed=6),
    }
    nodes = []
    pads = [0, 0, 1, 1, 0, 0, 1, 1]
    if opset < 11:
        nodes += [node("Pad", "x", "padded", pads=pads), node("Conv", "padded w", "c")]
    else:
        nodes += [constant("pads", np.asarray(pads, np.int64)), node("Pad", "x pads", "padded")]
        nodes += [node("Conv", "padded w", "c")]
    nodes += [node("BatchNormalization", "c scale shift mean variance", "n")]
    if opset < 11:
        nodes += [node("Clip", "n", "r", min=0.0, max=6.0)]
    else:
        nodes += [constant("zero", np.float32(0)), constant("six", np.float32(6))]
        nodes += [node("Clip", "n zero six", "r")]
    if opset < 18:
        nodes += [node("ReduceMean", "r", "m", axes=[2, 3], keepdims=1)]
    else:
        nodes += [constant("axes", np.asarray([2, 3], np.int64)), node("ReduceMean", "r axes", "m")]
    nodes += [node("Shape", "m", "shape"), constant("zeroth", np.asarray(0, np.int64))]
    nodes += [node("Gather", "shape zeroth", "batch", axis=0)]
    if opset < 13:
        nodes += [node("Unsqueeze", "batch", "batches", axes=[0])]
    else:
        nodes += [constant("front", np.asarray([0], np.int64))]
        nodes += [node("Unsqueeze", "batch front", "batches")]
    nodes += [constant("rest", np.asarray([-1], np.int64))]
    nodes += [node("Concat", "batches rest", "target", axis=0), node("Reshape", "m target", "f")]
    nodes += [node("Dropout", "f", "d"), node("MatMul", "d fc", "mm"), node("Add", "mm bias", "g")]
    nodes += [node("Softmax", "g", "y", axis=1)]
    return make_model(nodes, {"x": ["N", 3, 8, 8]}, ["y"], weights, opset)


def fingerprint(model: ir.Model) -> list[tuple[object, ...]]:
    """Operators, attributes, shapes and constants, without names."""
    rows = []
    for item in model.graph:
        attributes = sorted((k, str(v.value)) for k, v in item.attributes.items())
        operands = [
            v.const_value.numpy().tobytes() if v is not None and v.const_value is not None else None
            for v in item.inputs
        ]
        rows.append((item.op_type, attributes, [list(v.shape) for v in item.outputs], operands))
    return rows


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 21, 22])
def test_the_same_graph_from_every_opset(opset):
    result = imported(small_net(opset), input_shapes={"x": (2, 3, 8, 8)})
    assert ops(result.model) == ["Conv", "Clip", "GlobalAveragePool", "Reshape", "Gemm", "Softmax"]
    reference = import_model(small_net(21), input_shapes={"x": (2, 3, 8, 8)})
    assert fingerprint(result.model) == fingerprint(reference.model)
    assert result.model.opset_imports == {"": 21}


def test_two_imports_are_byte_identical_and_record_the_passes():
    shapes = {"x": (1, 3, 8, 8)}
    first, second = (import_model(small_net(13), input_shapes=shapes) for _ in range(2))
    contents = [
        ir.serde.serialize_model(item.model).SerializeToString(deterministic=True)
        for item in (first, second)
    ]
    assert contents[0] == contents[1]
    assert first.passes == second.passes and first.sha256 == second.sha256
    assert {p.name: p.changes for p in first.passes}["affine_after"] >= 2


def test_provenance_names_the_source_nodes():
    result = import_model(small_net(13), input_shapes={"x": (1, 3, 8, 8)})
    conv, gemm = only(result.model, "Conv"), only(result.model, "Gemm")
    assert conv.metadata_props[SOURCE_KEY] == "n_padded,n_c,n_n"
    assert gemm.metadata_props[SOURCE_KEY] == "n_mm,n_g"
    assert conv.outputs[0].name == "n", "the folded node's tensor keeps its name"


def test_an_initializer_that_is_also_an_input_is_a_constant():
    proto = make_proto([node("Add", "x w", "y")], {"x": [2, 3], "w": [3]}, ["y"], {"w": normal(3)})
    proto.ir_version = 3
    model = ir.serde.deserialize_model(proto)
    result = import_model(model)
    assert [v.name for v in result.model.graph.inputs] == ["x"]


def test_stale_declared_shapes_are_not_believed():
    proto = make_proto([node("Relu", "x", "r"), node("Neg", "r", "y")], {"x": [2, 3]}, ["y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [7, 9]))
    result = imported(ir.serde.deserialize_model(proto)).model
    assert list(only(result, "Relu").outputs[0].shape) == [2, 3]


def test_outputs_that_are_inputs_constants_or_repeated_keep_their_names():
    model = make_model(
        [
            node("Identity", "x", "same"),
            node("Relu", "x", "r"),
            node("Identity", "r", "again"),
            constant("fixed", normal(2)),
        ],
        {"x": [2, 3]},
        ["same", "r", "again", "fixed"],
    )
    result = imported(model).model
    assert sorted(ops(result)) == ["Identity", "Identity", "Identity", "Relu"]


def test_unnamed_and_equally_named_nodes_become_unique():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="twice"),
        helper.make_node("Exp", ["b"], ["y"], name="twice"),
    ]
    result = import_model(make_model(nodes, {"x": [2]}, ["y"])).model
    assert [item.name for item in result.graph] == ["Relu_0", "twice", "twice_1"]


def test_nodes_out_of_order_are_sorted():
    nodes = [node("Neg", "a", "y"), node("Relu", "x", "a")]
    assert ops(import_model(make_model(nodes, {"x": [2]}, ["y"])).model) == ["Relu", "Neg"]


def test_local_functions_are_inlined():
    proto = make_proto(
        [helper.make_node("Twice", ["x"], ["y"], domain="local", name="call")],
        {"x": [2, 3]},
        ["y"],
        domains={"local": 1},
    )
    function = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    proto.functions.append(function)
    assert ops(imported(ir.serde.deserialize_model(proto)).model) == ["Add"]


def branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
    def branch(op: str, name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [constant(f"k_{name}", np.float32(2)), node(op, f"x k_{name}", name)],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )

    return branch("Mul", "then"), branch("Add", "else")


@pytest.mark.parametrize(("condition", "op"), [(True, "Mul"), (False, "Add")])
def test_an_if_with_a_constant_condition_is_its_branch(condition, op):
    then, other = branches()
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other, name="if"),
        node("Relu", "i", "y"),
    ]
    model = make_model(nodes, {"x": [2, 3]}, ["y"], {"c": np.asarray(condition)})
    assert ops(imported(model).model) == [op, "Relu"]


def test_an_if_on_data_keeps_both_branches_in_the_new_opset():
    then, other = branches()
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Greater", "m zero", "c"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="if"),
    ]
    model = make_model(nodes, {"x": [2, 3]}, ["y"], {"zero": np.float32(0)}, opset=13)
    result = imported(model).model
    assert ops(result)[-1] == "If"
    assert list(result.graph.outputs[0].shape) == [2, 3]


def test_a_loop_keeps_its_body_in_the_new_opset():
    body = helper.make_graph(
        [
            constant("one", np.float32(1)),
            node("Add", "acc one", "sum"),
            node("Mul", "sum x", "product"),
            node("Unsqueeze", "product", "wide", axes=[0]),
            node("Squeeze", "wide", "out", axes=[0]),
            node("Identity", "cond", "still"),
            node("ReduceSum", "out", "scan", axes=[1], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("out", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("scan", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        node("Relu", "x", "start"),
        helper.make_node("Loop", ["n", "go", "start"], ["y", "z"], body=body, name="loop"),
        node("Neg", "y", "w"),
    ]
    constants = {"n": np.asarray(3), "go": np.asarray(True)}
    result = imported(make_model(nodes, {"x": (2, 3)}, ["w", "z"], constants, opset=11)).model
    assert ops(result) == ["Relu", "Loop", "Neg"]
    assert list(result.graph.outputs[0].shape) == [2, 3]


def test_data_dependent_shapes_are_allowed_after_their_operator():
    nodes = [node("NonZero", "x", "i"), node("Cast", "i", "f", to=1), node("Neg", "f", "y")]
    assert ops(imported(make_model(nodes, {"x": [2, 3]}, ["y"])).model)[0] == "NonZero"


def test_foreign_domains_pass_through():
    foreign = helper.make_node("FastGelu", ["r"], ["g"], domain="com.microsoft", name="foreign")
    nodes = [node("Relu", "x", "r"), foreign, node("Neg", "g", "y")]
    model = make_model(nodes, {"x": [2, 3]}, ["y"], domains={"com.microsoft": 1, "unused": 3})
    result = imported(model).model
    assert ops(result) == ["Relu", "FastGelu", "Neg"]
    assert result.opset_imports == {"": 21, "com.microsoft": 1}
    assert list(result.graph.outputs[0].shape) == [2, 3]


def test_an_operator_that_is_newer_keeps_the_opset_that_it_needs():
    nodes = [node("Relu", "x", "r"), node("RMSNormalization", "r s", "y", axis=-1)]
    model = make_model(nodes, {"x": [2, 8]}, ["y"], {"s": normal(8)}, opset=24)
    assert import_model(model).model.opset_imports[""] == 23


def test_fold_sizes_are_capped():
    huge = {"shape": np.asarray([1 << 14, 1 << 15], np.int64), "row": np.asarray([0], np.int64)}
    nodes = [
        node("ConstantOfShape", "shape", "big"),
        node("Gather", "big row", "first"),
        node("Add", "first x", "y"),
    ]
    result = import_model(make_model(nodes, {"x": [1, 1 << 15]}, ["y"], huge)).model
    assert ops(result) == ["ConstantOfShape", "Slice", "Add"]


def test_shape_arithmetic_folds_with_truncating_division():
    constants = {"minus": np.asarray(-2, np.int64), "seven": np.asarray([7], np.int64)}
    nodes = [
        node("Shape", "x", "s"),
        node("Div", "seven minus", "q"),
        node("Add", "s q", "t"),
        node("Cast", "t", "y", to=1),
    ]
    model = make_model(nodes, {"x": [5]}, ["y"], constants)
    result = import_model(model).model
    assert ops(result) == ["Identity"]
    assert result.graph[0].inputs[0].const_value.numpy().tolist() == [2.0]


def quantized_net() -> ir.Model:
    generator = rng(3)
    scales = {"sx": np.float32(0.05), "zx": np.uint8(128), "sw": np.float32(0.01), "zw": np.int8(0)}
    weight = generator.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", "x sx zx", "xq"),
        node("DequantizeLinear", "xq sx zx", "xd"),
        node("DequantizeLinear", "wq sw zw", "wd"),
        node("Conv", "xd wd", "c", auto_pad="SAME_UPPER"),
        node("BatchNormalization", "c one one one one", "n"),
        node("Identity", "n", "i"),
        node("QuantizeLinear", "i sx zx", "yq"),
        node("DequantizeLinear", "yq sx zx", "y"),
    ]
    constants = {**scales, "wq": weight, "one": np.ones(4, np.float32)}
    return make_model(nodes, {"x": (1, 3, 6, 6)}, ["y"], constants, opset=13)


def test_quantized_models_keep_their_quantizers():
    model = quantized_net()
    assert is_quantized(model) and not is_quantized(small_net(13))
    result = imported(model)
    assert result.quantized
    assert ops(result.model).count("DequantizeLinear") == 3
    assert ops(result.model).count("BatchNormalization") == 1
    assert "Identity" not in ops(result.model)
    conv = only(result.model, "Conv")
    assert conv.inputs[1].producer().op_type == "DequantizeLinear"


def poison_a_weight(model: ir.Model) -> None:
    weight = only(model, "Conv").inputs[1]
    weight.const_value.numpy()[0] = np.nan


def broken(change) -> ModelError:
    model = import_model(small_net(13), input_shapes={"x": (1, 3, 8, 8)}).model
    change(model)
    with pytest.raises(ModelError) as caught:
        verify(model, "test")
    return caught.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: setattr(m.graph[1].outputs[0], "shape", None), "static shape"),
        (lambda m: setattr(m.graph[1], "name", m.graph[0].name), "used twice"),
        (lambda m: setattr(m.graph[1].outputs[0], "name", "x"), "defined twice"),
        (lambda m: m.graph.opset_imports.update({"": 13}), "opset 13"),
        (lambda m: m.graph.insert_after(m.graph[1], m.graph[0]), "before it is made"),
        (lambda m: setattr(m.graph[1], "op_type", "Scatterr"), "not in opset"),
        (lambda m: m.graph.remove(m.graph[-1]), "computed by no node"),
        (poison_a_weight, "NaN"),
    ],
)
def test_verify_finds_what_is_broken(change, words):
    assert words in str(broken(change))


def test_verify_structure_refuses_constant_nodes():
    model = import_model(make_model([node("Relu", "x", "y")], {"x": [2]}, ["y"])).model
    model.graph.append(ir.node("Constant", [], {"value_float": 1.0}, name="k"))
    with pytest.raises(ModelError, match="Constant node"):
        verify_structure(model, "test")


def test_a_part_is_imported_between_tensors_of_the_source():
    source = small_net(11)
    part = import_model(source, input_shapes={"x": (1, 3, 8, 8)}, start=["c"], end=["m"])
    assert [v.name for v in part.model.graph.inputs] == ["c"]
    assert [v.name for v in part.model.graph.outputs] == ["m"]
    assert isinstance(part.original, ir.Model)
    feeds = {"c": normal(1, 8, 8, 8, seed=9)}
    (error,) = compare_outputs(part.original, part.model, feeds).values()
    assert error.max_relative < 1e-5


def test_an_unknown_tensor_to_cut_at_is_refused_with_the_nearest_name():
    with pytest.raises(ModelError, match="padded"):
        import_model(small_net(11), input_shapes={"x": (1, 3, 8, 8)}, start=["paded"])
