from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import quantize_nets as nets
from onnx import TensorProto, helper

from tilewright.errors import ModelError
from tilewright.graph import DType, Encoding
from tilewright.ops.pattern import FloatGraph
from tilewright.quantize import find_sites, strip
from tilewright.quantize.completion import accumulator_bound


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("types", ["S8S8", "U8S8", "U8U8"])
def test_quantize_static(types, per_channel, tmp_path):
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    kinds = {"S8": QuantType.QInt8, "U8": QuantType.QUInt8}
    net = nets.classifier()
    ir.save(net, tmp_path / "float.onnx")
    samples = nets.feeds(net)

    class Reader:
        left = iter([dict(s) for s in samples])

        def get_next(self):
            return next(self.left, None)

    quantize_static(
        tmp_path / "float.onnx", tmp_path / "q.onnx", Reader(), quant_format=QuantFormat.QDQ,
        activation_type=kinds[types[:2]], weight_type=kinds[types[2:]], per_channel=per_channel,
    )  # fmt: skip
    foreign = ir.from_proto(
        onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "q.onnx"), strict_mode=True)
    )
    stripped = strip(foreign)
    partition = find_sites(stripped)
    assert not partition.cpu
    dtype = {"S8": DType.S8, "U8": DType.U8}
    assert {e.dtype for e in stripped.encodings.values()} == {dtype[types[:2]]}
    weights = [stripped.constants[s.weights.value.name] for s in partition.sites if s.weights]
    assert {w.dtype for w in weights} == {dtype[types[2:]]}
    assert all((w.axis is not None) == per_channel for w in weights if w.codes.ndim == 4)
    for site in partition.sites:
        if site.weights is not None and site.weights.bias is not None:
            assert stripped.constants[site.weights.bias.name].dtype is DType.S32


def qdq(nodes, outputs, constants, shape=(1, 2, 4, 4), codes_of_x=True):
    """A small QDQ model on input x, whose pair makes `xd` with scale 0.1 and zero point 3."""
    first = pair("x", "xd", "0") if codes_of_x else []
    constants = {
        "s0": np.float32(0.1), "z0": np.uint8(3), "s1": np.float32(0.25), "z1": np.uint8(7),
        **constants,
    }  # fmt: skip
    return nets.model([*first, *nodes], {"x": shape}, outputs, constants)


def pair(value, out, parameters):
    names = [f"s{parameters}", f"z{parameters}"]
    return [
        helper.make_node("QuantizeLinear", [value, *names], [f"{out}q"]),
        helper.make_node("DequantizeLinear", [f"{out}q", *names], [out]),
    ]


def test_a_second_pair_on_one_value_is_an_identity_with_a_new_value():
    net = qdq(
        [
            *pair("x", "xe", "1"),
            helper.make_node("Add", ["xd", "xe"], ["a"]),
            *pair("a", "y", "1"),
        ],
        ["y"],
        {},
    )
    stripped = strip(net)
    (identity,) = [n for n in stripped.graph if n.op_type == "Identity"]
    assert stripped.encodings["x"] == Encoding(DType.U8, np.float32(0.1), 3)
    assert stripped.encodings[identity.outputs[0].name] == Encoding(DType.U8, 0.25, 7)
    assert stripped.encodings["y"] == Encoding(DType.U8, 0.25, 7)
    assert not find_sites(stripped).cpu


def test_equal_pairs_on_one_value_merge():
    net = qdq(
        [
            *pair("x", "xe", "0"),
            helper.make_node("Add", ["xd", "xe"], ["a"]),
            *pair("a", "y", "1"),
        ],
        ["y"],
        {},
    )
    (add,) = list(strip(net).graph)
    assert add.inputs[0] is add.inputs[1]


def test_u16_around_32768_is_s16():
    constants = {"s2": np.float32(0.01), "z2": np.uint16(32768)}
    net = qdq(
        [helper.make_node("Add", ["xd", "xd"], ["a"]), *pair("a", "y", "2")], ["y"], constants
    )
    assert strip(net).encodings["y"] == Encoding(DType.S16, float(np.float32(0.01)), 0)


def test_any_other_u16_is_refused():
    constants = {"s2": np.float32(0.01), "z2": np.uint16(100)}
    net = qdq(
        [helper.make_node("Add", ["xd", "xd"], ["a"]), *pair("a", "y", "2")], ["y"], constants
    )
    with pytest.raises(ModelError, match="symmetric"):
        strip(net)


def test_quantize_linear_of_a_constant_is_folded():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 2, 1, 1)).astype(np.float32)
    scale = np.array([0.01, 0.02, 0.03], np.float32)
    constants = {"w": weight, "sw": scale, "zw": np.zeros(3, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], axis=0),
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], axis=0),
        nets.conv("xd", "wd", "c", kernel=1),
        *pair("c", "y", "1"),
    ]
    stripped = strip(qdq(nodes, ["y"], constants))
    codes = np.clip(np.rint(weight / scale.reshape(3, 1, 1, 1)), -128, 127)
    assert np.array_equal(stripped.constants["wd"].codes, codes)
    assert stripped.constants["wd"].axis == 0
    (site,) = find_sites(stripped).sites
    assert site.weights.value.name == "wd"


def test_an_open_network_output_gets_a_scale_that_no_result_exceeds():
    rng = np.random.default_rng(1)
    codes = rng.integers(-127, 128, (3, 2, 1, 1)).astype(np.int8)
    constants = {
        "wq": codes, "sw": np.float32(0.02), "zw": np.int8(0), "b": np.float32([1, -2, 3]),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["w"]),
        nets.conv("xd", "w", "y", kernel=1, bias="b"),
    ]
    net = qdq(nodes, ["y"], constants)
    stripped = strip(net)
    found = stripped.encodings["y"]
    assert found.dtype is DType.S16
    corners = [np.full((1, 2, 4, 4), v, np.float32) for v in (-100, 100)]
    mixed = np.stack([corners[0][0, 0], corners[1][0, 1]])[None]
    results = nets.run(net, [{"x": x} for x in (*corners, mixed, mixed[:, ::-1])])
    assert np.abs(results).max() <= found.scale * 32767 * (1 + 1e-6)
    assert np.abs(results).max() >= found.scale * 32767 * 0.3


def test_the_bound_is_reached_by_the_worst_codes():
    codes = np.array([[[[2]], [[-3]]]], np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["w"]),
        nets.conv("xd", "w", "y", kernel=1),
    ]
    net = qdq(nodes, ["y"], {"wq": codes, "sw": np.float32(0.5), "zw": np.int8(0)})
    stripped = strip(net)
    (site,) = find_sites(stripped).sites
    high, low = 0.1 * (255 - 3), 0.1 * -3
    bound = accumulator_bound(site, stripped, stripped.encodings["x"])
    assert bound == pytest.approx(max(1.0 * high - 1.5 * low, -(1.0 * low - 1.5 * high)))


def test_movement_without_a_pair_takes_the_encoding_before_or_behind_it():
    constants = {"shape": np.array([1, 32], np.int64), "w": np.float32(1)}
    forwards = qdq([helper.make_node("Reshape", ["xd", "shape"], ["y"])], ["y"], constants)
    assert strip(forwards).encodings["y"] == Encoding(DType.U8, np.float32(0.1), 3)
    nodes = [
        helper.make_node("Add", ["xd", "xd"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["r"]),
        *pair("r", "y", "1"),
    ]
    assert strip(qdq(nodes, ["y"], constants)).encodings["a"] == Encoding(DType.U8, 0.25, 7)


def test_a_float_part_stays_on_the_cpu():
    nodes = [
        helper.make_node("Add", ["xd", "xd"], ["a"]),
        *pair("a", "ad", "1"),
        helper.make_node("Mul", ["ad", "ad"], ["m"], name="float_mul"),
        helper.make_node("Mul", ["m", "ad"], ["y"]),
    ]
    partition = find_sites(strip(qdq(nodes, ["y"], {})))
    assert [s.kind for s in partition.sites] == ["Add"]
    assert partition.cpu[0].node.name == "float_mul"
    assert "no scale" in partition.cpu[0].reason


def test_scales_per_channel_of_an_activation_become_one_that_spans_them():
    constants = {"s2": np.float32([0.01, 0.02]), "z2": np.zeros(2, np.uint8)}
    net = qdq(
        [helper.make_node("Add", ["xd", "xd"], ["a"]), *pair("a", "y", "2")], ["y"], constants
    )
    stripped = strip(net)
    assert stripped.encodings["y"] == Encoding(DType.U8, pytest.approx(0.02), 0)
    (note,) = stripped.notes
    assert note.code == "joined-activation-scales" and note.text.startswith("a: its 2 channels")


def test_integer_readers_and_integer_outputs_are_refused():
    reader = helper.make_node("Cast", ["aq"], ["y"], to=TensorProto.FLOAT)
    nodes = [helper.make_node("Add", ["xd", "xd"], ["a0"]), *pair("a0", "a", "1")]
    with pytest.raises(ModelError, match="reads integers"):
        strip(qdq([*nodes, reader], ["y"], {}))
    net = qdq(nodes, ["a"], {})
    (quantizer,) = [
        n for n in net.graph if n.op_type == "QuantizeLinear" and n.inputs[0].name == "a0"
    ]
    net.graph.outputs.append(quantizer.outputs[0])
    with pytest.raises(ModelError, match="quantized"):
        strip(net)


def test_a_float_graph_has_no_encodings_to_read():
    stripped = strip(nets.classifier())
    assert not stripped.encodings
    assert isinstance(stripped, FloatGraph)
