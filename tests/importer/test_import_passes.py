"""Each rewrite alone: where it fires, its near misses, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from importer_nets import applied, attribute, imported, make_model, node, normal, only, ops

from tilewright.importer import import_model
from tilewright.importer.passes import (
    FLOAT_ROUND,
    affine_after,
    affine_before,
    affine_chain,
    arithmetic,
    clamp,
    dead,
    deduplicate,
    gemm,
    global_pool,
    hard_sigmoid,
    identity,
    layout,
    pad,
)

IMAGE = {"x": (2, 3, 6, 7)}


def net(nodes, constants=None, outputs=("y",), inputs=None):
    return make_model(nodes, inputs or IMAGE, list(outputs), constants)


def f32(*values):
    return np.asarray(values[0] if len(values) == 1 else values, np.float32)


def channels(count, seed=0):
    return normal(count, seed=seed).reshape(1, count, 1, 1)


@pytest.mark.parametrize("run", FLOAT_ROUND)
def test_nothing_to_do_is_nothing_done(run):
    model = net(
        [
            node("Conv", "x w", "c"),
            node("Relu", "c", "r"),
            node("Transpose", "r", "y", perm=[0, 2, 3, 1]),
        ],
        {"w": normal(4, 3, 3, 3)},
    )
    part, changes = applied(model, run)
    assert changes == 0 and ops(part) == ["Conv", "Relu", "Transpose"]


def batch_norm_constants(count):
    return {
        "g": normal(count, seed=1),
        "b": normal(count, seed=2),
        "m": normal(count, seed=3),
        "v": np.abs(normal(count, seed=4)) + 0.2,
    }


LINEAR = {
    "Conv": ("Conv", {"w": normal(4, 3, 3, 3)}, {"pads": [1, 1, 1, 1]}),
    "biased": ("Conv", {"w": normal(4, 3, 1, 1), "bias": normal(4)}, {}),
    "depthwise": ("Conv", {"w": normal(6, 1, 3, 3)}, {"group": 3}),
    "ConvTranspose": ("ConvTranspose", {"w": normal(3, 4, 2, 2)}, {"strides": [2, 2]}),
    "grouped transpose": ("ConvTranspose", {"w": normal(3, 2, 2, 2)}, {"group": 3}),
}


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("after", ["BatchNormalization", "Mul", "Add", "scalar"])
def test_affine_after_a_linear_node(kind, after):
    op, constants, attributes = LINEAR[kind]
    count = constants["w"].shape[1 if op == "ConvTranspose" else 0]
    count *= attributes.get("group", 1) if op == "ConvTranspose" else 1
    constants = {**constants, **batch_norm_constants(count), "k": channels(count), "one": f32(0.3)}
    operands = "x w bias" if "bias" in constants else "x w"
    last = {
        "BatchNormalization": node("BatchNormalization", "c g b m v", "y", epsilon=1e-3),
        "Mul": node("Mul", "c k", "y"),
        "Add": node("Add", "c k", "y"),
        "scalar": node("Mul", "c one", "y"),
    }[after]
    model = net([node(op, operands, "c", **attributes), last], constants)
    part, changes = applied(model, affine_after.run)
    assert changes == 1 and ops(part) == [op]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Conv", "x w", "c"), node("Mul", "c k", "y")], ("y", "c")),
        ([node("Conv", "x w", "c"), node("Mul", "c k", "m"), node("Add", "m c", "y")], ("y",)),
        ([node("Conv", "x w", "c"), node("Mul", "c rows", "y")], ("y",)),
        ([node("Conv", "x w", "c"), node("Mul", "c c", "y")], ("y",)),
        ([node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Mul", "r k", "y")], ("y",)),
    ],
)
def test_affine_after_keeps_shared_values_and_other_shapes(nodes, outputs):
    constants = {"w": normal(4, 3, 1, 1), "k": channels(4), "rows": normal(1, 1, 6, 1)}
    assert applied(net(nodes, constants, outputs), affine_after.run)[1] == 0


def test_affine_after_does_not_overflow_weights():
    constants = {"w": f32(3e38) * np.ones((1, 3, 1, 1), np.float32), "k": f32(10.0)}
    model = net([node("Conv", "x w", "c"), node("Mul", "c k", "y")], constants)
    assert ops(import_model(model).model) == ["Conv", "Mul"]


@pytest.mark.parametrize("group", [1, 3])
def test_affine_before_an_unpadded_convolution(group):
    constants = {"w": normal(6, 3 // group, 3, 3), **batch_norm_constants(3)}
    model = net(
        [node("BatchNormalization", "x g b m v", "n"), node("Conv", "n w", "y", group=group)],
        constants,
    )
    part, changes = applied(model, affine_before.run)
    assert changes == 1 and ops(part) == ["Conv"]


@pytest.mark.parametrize("first", ["batch norm", "mul add"])
def test_affine_before_a_padded_convolution_leaves_an_add(first):
    constants = {
        "w": normal(4, 3, 3, 3),
        "s": channels(3) + np.float32(3),
        "t": channels(3, 1),
        **batch_norm_constants(3),
    }
    nodes = {
        "batch norm": [node("BatchNormalization", "x g b m v", "n")],
        "mul add": [node("Mul", "x s", "p"), node("Add", "p t", "n")],
    }[first]
    model = net([*nodes, node("Conv", "n w", "y", pads=[1, 1, 1, 1])], constants)
    part, changes = applied(model, affine_before.run)
    assert changes == 1 and ops(part) == ["Add", "Conv"]


def test_affine_before_moves_a_scale_into_a_padded_convolution_but_no_shift():
    constants = {"w": normal(4, 3, 3, 3), "k": channels(3)}
    padded = node("Conv", "n w", "y", pads=[1, 1, 1, 1])
    assert applied(net([node("Mul", "x k", "n"), padded], constants), affine_before.run)[1] == 1
    assert applied(net([node("Add", "x k", "n"), padded], constants), affine_before.run)[1] == 0
    transposed = node("ConvTranspose", "n u", "y")
    constants = {"u": normal(3, 2, 2, 2), "k": channels(3)}
    assert applied(net([node("Mul", "x k", "n"), transposed], constants), affine_before.run)[1] == 1
    assert applied(net([node("Add", "x k", "n"), transposed], constants), affine_before.run)[1] == 0


def test_affine_around_gemm():
    constants = {"w": normal(5, 4), "c": normal(4), "k": normal(4, seed=1), "l": normal(5, seed=2)}
    nodes = [
        node("Mul", "x k", "a"),
        node("Add", "a c", "b"),
        node("Gemm", "b w", "g", transB=1),
        node("Mul", "g l", "y"),
    ]
    result = imported(net(nodes, constants, inputs={"x": (3, 4)})).model
    assert ops(result) == ["Gemm"] and len(result.graph[0].inputs) == 3


def test_affine_chain():
    constants = {**batch_norm_constants(3), "a": channels(3), "half": f32(0.5), "k": channels(3, 1)}
    for kind in ("Mul", "Add"):
        nodes = [node(kind, "x a", "t"), node(kind, "t half", "y")]
        part, changes = applied(net(nodes, constants), affine_chain.run)
        assert changes == 1 and ops(part) == [kind]
    nodes = [
        node("Mul", "x k", "t"),
        node("BatchNormalization", "t g b m v", "n"),
        node("Add", "n a", "y"),
    ]
    part, changes = applied(net(nodes, constants), affine_chain.run)
    assert changes == 2 and ops(part) == ["BatchNormalization"]
    nodes = [node("Mul", "x a", "t"), node("Add", "t half", "y")]
    assert applied(net(nodes, constants), affine_chain.run)[1] == 0


@pytest.mark.parametrize("divisor", [4.0, 3.0, 0.7])
def test_arithmetic_inverts_constants_and_orders_operands(divisor):
    constants = {"d": f32(divisor), "s": channels(3)}
    nodes = [node("Div", "x d", "a"), node("Sub", "a s", "b"), node("Mul", "s b", "y")]
    part, changes = applied(net(nodes, constants), arithmetic.run)
    assert changes == 3 and ops(part) == ["Mul", "Add", "Mul"]
    assert all(item.inputs[1].is_initializer() for item in part.graph)


def test_arithmetic_keeps_other_orders_integers_and_tiny_divisors():
    constants = {"c": f32(2.0), "tiny": f32(1e-42), "zero": f32(0.0)}
    nodes = [
        node("Sub", "c x", "a"),
        node("Div", "c a", "b"),
        node("Div", "b tiny", "d"),
        node("Div", "d zero", "y"),
    ]
    assert applied(net(nodes, constants), arithmetic.run)[1] == 0


CLAMPS = {"lo": f32(-0.5), "zero": f32(0.0), "six": f32(6.0), "one": f32(1.0), "row": normal(7)}


@pytest.mark.parametrize(
    ("nodes", "result"),
    [
        ([node("Relu", "x", "r"), node("Clip", "r lo one", "y")], ["Clip"]),
        ([node("Clip", "x zero", "y")], ["Relu"]),
        ([node("Max", "x zero", "y")], ["Relu"]),
        ([node("Max", "x zero", "m"), node("Min", "m six", "y")], ["Clip"]),
        ([node("Clip", "x lo one", "c"), node("Relu", "c", "y")], ["Clip"]),
        ([node("Relu", "x", "a"), node("Relu", "a", "y")], ["Relu"]),
        ([node("Clip", "x six", "a"), node("Clip", "a lo one", "y")], ["Clip"]),
        ([node("Max", "x row", "y")], ["Max"]),
    ],
)
def test_clamps(nodes, result):
    part, changes = applied(net(nodes, CLAMPS), clamp.run)
    assert ops(part) == result
    assert (changes > 0) == (result != ["Max"])


def test_a_clamp_that_others_read_is_not_merged():
    nodes = [node("Relu", "x", "r"), node("Clip", "r lo one", "y")]
    assert applied(net(nodes, CLAMPS, ("r", "y")), clamp.run)[1] == 0


HARD = {"three": f32(3.0), "zero": f32(0.0), "six": f32(6.0), "sixth": f32(1 / 6), "four": f32(4.0)}


def shifted(last="zero six"):
    return [node("Add", "x three", "s"), node("Clip", f"s {last}", "q")]


@pytest.mark.parametrize(
    "nodes",
    [
        [*shifted(), node("Div", "q six", "y")],
        [*shifted(), node("Mul", "sixth q", "y")],
    ],
)
def test_hard_sigmoid(nodes):
    result = only(imported(net(nodes, HARD)).model, "HardSigmoid")
    assert attribute(result, "alpha") == pytest.approx(1 / 6)
    assert attribute(result, "beta") == pytest.approx(0.5)
    assert applied(net([*nodes[:2], node("Mul", "q sixth", "y")], HARD), hard_sigmoid.run)[1] == 1


@pytest.mark.parametrize(
    "nodes",
    [
        [*shifted(), node("Mul", "x q", "m"), node("Div", "m six", "y")],
        [*shifted(), node("Div", "q six", "h"), node("Mul", "h x", "y")],
        [*shifted(), node("Mul", "q x", "m"), node("Mul", "m sixth", "y")],
        [node("HardSigmoid", "x", "h", alpha=1 / 6, beta=0.5), node("Mul", "x h", "y")],
        [
            node("Add", "three x", "s"),
            node("Relu", "s", "p"),
            node("Min", "p six", "q"),
            node("Mul", "x q", "m"),
            node("Div", "m six", "y"),
        ],
    ],
)
def test_hard_swish(nodes):
    assert ops(imported(net(nodes, HARD)).model) == ["HardSwish"]


@pytest.mark.parametrize(
    "nodes",
    [
        [*shifted("zero four"), node("Mul", "x q", "m"), node("Mul", "m sixth", "y")],
        [node("HardSigmoid", "x", "h"), node("Mul", "x h", "y")],
        [node("Neg", "x", "n"), *shifted(), node("Mul", "n q", "m"), node("Mul", "m sixth", "y")],
    ],
)
def test_nearly_hard_swish(nodes):
    assert "HardSwish" not in ops(imported(net(nodes, HARD)).model)


@pytest.mark.parametrize(
    ("first", "result"),
    [
        (node("ReduceMean", "x hw", "y", keepdims=1), ["GlobalAveragePool"]),
        (node("ReduceMean", "x hw", "y", keepdims=0), ["GlobalAveragePool", "Reshape"]),
        (node("AveragePool", "x", "y", kernel_shape=[6, 7]), ["GlobalAveragePool"]),
        (node("ReduceMean", "x wc", "y"), ["ReduceMean"]),
        (node("AveragePool", "x", "y", kernel_shape=[6, 6]), ["AveragePool"]),
    ],
)
def test_global_pool(first, result):
    axes = {"hw": np.asarray([-1, 2]), "wc": np.asarray([1, 2])}
    assert ops(applied(net([first], axes), global_pool.run)[0]) == result


def test_matmul_by_a_matrix_is_gemm_at_rank_2_only():
    constants = {"w": normal(4, 5), "b": normal(5)}
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    result = imported(net(nodes, constants, inputs={"x": (3, 4)})).model
    item = only(result, "Gemm")
    assert list(item.inputs[1].shape) == [5, 4] and attribute(item, "transB") == 1
    deep = imported(net(nodes, constants, inputs={"x": (2, 3, 4)})).model
    assert ops(deep) == ["MatMul", "Add"]


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (1,), (), (3, 5), (3, 1)])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm(trans_a, trans_b, bias, constant):
    inputs = {"x": (4, 3) if trans_a else (3, 4)}
    right = (5, 4) if trans_b else (4, 5)
    constants = {"w": normal(*right)} if constant else {}
    if not constant:
        inputs["w"] = right
    if bias is not None:
        constants["c"] = np.asarray(normal(*bias, seed=1), np.float32)
    operands = "x w" if bias is None else "x w c"
    model = net(
        [node("Gemm", operands, "y", transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)],
        constants,
        inputs=inputs,
    )
    result = imported(model).model
    assert ("Gemm" in ops(result)) == constant
    if constant:
        item = only(result, "Gemm")
        assert {k: attribute(item, k) for k in ("alpha", "beta", "transA", "transB")} == {
            "alpha": 1.0,
            "beta": 1.0,
            "transA": 0,
            "transB": 1,
        }
        assert all(list(v.shape) == [5] for v in item.inputs[2:])
    assert applied(result, gemm.run)[1] == 0


def test_layout_merges_neighbours_and_keeps_other_readers():
    shapes = {"a": np.asarray([2, 21, 6]), "b": np.asarray([6, 42])}
    nodes = [node("Reshape", "x a", "r"), node("Reshape", "r b", "y")]
    part, changes = applied(net(nodes, shapes), layout.run)
    assert changes == 1 and ops(part) == ["Reshape"]
    assert ops(applied(net(nodes, shapes, ("r", "y")), layout.run)[0]) == ["Reshape", "Reshape"]
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        node("Transpose", "t", "y", perm=[3, 1, 2, 0]),
    ]
    part, _ = applied(net(nodes), layout.run)
    assert attribute(only(part, "Transpose"), "perm") == [1, 2, 3, 0]
    back = [nodes[0], node("Transpose", "t", "u", perm=[0, 3, 1, 2]), node("Relu", "u", "y")]
    assert ops(imported(net(back)).model) == ["Relu"]


def pad_constants(pads, value):
    return {"p": np.asarray(pads, np.int64), "v": f32(value), "w": normal(2, 3, 3, 3)}


SPATIAL = [0, 0, 1, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("pads", "value", "last", "folds"),
    [
        (SPATIAL, 0.0, node("Conv", "q w", "y", pads=[1, 1, 0, 0]), True),
        (SPATIAL, 1.0, node("Conv", "q w", "y"), False),
        ([0, 1, 1, 0, 0, 0, 1, 2], 0.0, node("Conv", "q u", "y"), False),
        ([0, 0, 1, 0, 0, 0, -1, 2], 0.0, node("Conv", "q w", "y"), False),
        (SPATIAL, 0.0, node("AveragePool", "q", "y", kernel_shape=[3, 3]), True),
        (
            SPATIAL,
            0.0,
            node("AveragePool", "q", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            False,
        ),
        (
            SPATIAL,
            0.0,
            node(
                "AveragePool",
                "q",
                "y",
                kernel_shape=[4, 4],
                pads=[1, 1, 1, 1],
                count_include_pad=1,
            ),
            True,
        ),
        (SPATIAL, 0.0, node("AveragePool", "q", "y", kernel_shape=[2, 2]), False),
        (SPATIAL, 0.0, node("MaxPool", "q", "y", kernel_shape=[3, 3]), False),
        (SPATIAL, -np.inf, node("MaxPool", "q", "y", kernel_shape=[3, 3]), True),
    ],
)
def test_pad(pads, value, last, folds):
    constants = {**pad_constants(pads, value), "u": normal(2, 4, 3, 3)}
    part, changes = applied(net([node("Pad", "x p v", "q"), last], constants), pad.run)
    assert changes == folds and ops(part)[-1] == last.op_type


@pytest.mark.parametrize("stride", [1, 2])
def test_zeros_move_into_a_max_pool_of_values_that_are_not_negative(stride):
    nodes = [
        node("Relu", "x", "r"),
        node("Pad", "r p v", "q"),
        node("MaxPool", "q", "y", kernel_shape=[3, 3], strides=[stride, stride]),
    ]
    part, _ = applied(net(nodes, pad_constants(SPATIAL, 0.0)), pad.run)
    assert ops(part) == ["Relu", "MaxPool"]


IDENTITIES = [
    node("Identity", "r", "s"),
    node("Transpose", "r", "s", perm=[0, 1, 2, 3]),
    node("Reshape", "r same", "s"),
    node("Pad", "r none", "s"),
    node("Concat", "r", "s", axis=1),
    node("Cast", "r", "s", to=1),
    node("Expand", "r ones", "s"),
    node("Tile", "r ones", "s"),
    node("Resize", "r - scale", "s"),
    node("Slice", "r from to axes", "s"),
    node("Add", "r zero", "s"),
    node("Mul", "one r", "s"),
    node("Div", "r one", "s"),
    node("Clip", "r", "s"),
    node("Split", "r", "s", num_outputs=1),
]

NEUTRAL = {
    "same": np.asarray([0, 3, -1, 7]),
    "none": np.zeros(8, np.int64),
    "ones": np.ones(4, np.int64),
    "scale": np.ones(4, np.float32),
    "from": np.asarray([0, 0]),
    "to": np.asarray([6, 1 << 40]),
    "axes": np.asarray([2, 3]),
    "zero": np.zeros((1, 3, 1, 1), np.float32),
    "one": f32(1.0),
}


@pytest.mark.parametrize("item", IDENTITIES, ids=[item.op_type for item in IDENTITIES])
@pytest.mark.parametrize("last", [True, False])
def test_identity(item, last):
    outputs = ("s",) if last else ("y",)
    model = net(
        [node("Relu", "x", "r"), item, *([] if last else [node("Neg", "s", "y")])], NEUTRAL, outputs
    )
    part, changes = applied(model, identity.run)
    assert changes >= 1
    assert ops(part) == ["Relu"] + ([] if last else ["Neg"])
    assert part.graph.outputs[0].name == outputs[0]


def test_a_neutral_constant_that_widens_is_no_identity():
    model = net([node("Add", "x zeros", "y")], {"zeros": np.zeros((4, 2, 3, 6, 7), np.float32)})
    assert applied(model, identity.run)[1] == 0


def test_dead_and_equal_constants():
    constants = {"a": normal(3, 1, 1), "b": normal(3, 1, 1), "unused": normal(4)}
    nodes = [node("Add", "x a", "s"), node("Mul", "s b", "y"), node("Exp", "x", "nobody")]
    part, changes = applied(net(nodes, constants), dead.run)
    assert changes == 2 and ops(part) == ["Add", "Mul"]
    part, changes = applied(net(nodes, constants), deduplicate.run)
    assert changes == 1 and len(part.graph.initializers) == 2
