"""Models that other tools have quantized, through the whole build and beside onnxruntime."""

from __future__ import annotations

import json
import logging

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import quantize_nets as nets
from onnx import helper

import tilewright

SHAPE = (1, 3, 16, 16)
BIAS = 1.5
MARGINAL = 127 * BIAS / (2 / 255 * 2.0**31)
"""The largest weight whose bias is at 2**31 steps, when codes of the input step by 2/255."""
KINDS = ("raised-weight-scales", "clipped-biases")


def constants(seed=0):
    """Weights with channels that are nearly dead but for their bias, as folded norms leave them."""
    rng = np.random.default_rng(seed)
    found = nets.arrays(
        rng, w1=(8, 3, 5, 5), b1=(8,), w2=(8, 1, 3, 3), b2=(8,),
        w3=(8, 6, 2, 2), b3=(6,), w4=(5, 96), b4=(5,),
    )  # fmt: skip
    found["w1"][2] = rng.choice([-1, 1], (3, 5, 5)) * np.float32(0.97 * MARGINAL)
    found["w2"][5] *= 1e-7
    found["w3"][:, 1] *= 1e-7
    found["w4"][3] *= 1e-7
    for name, channel in (("b1", 2), ("b2", 5), ("b3", 1), ("b4", 3)):
        found[name][channel] = BIAS
    return {**found, "shape": np.array([1, 96], np.int64)}


def network():
    nodes = [
        nets.conv("x", "w1", "c1", kernel=5, stride=2, bias="b1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        nets.conv("r1", "w2", "c2", group=8, bias="b2"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("ConvTranspose", ["r2", "w3", "b3"], ["t"], strides=[2, 2]),
        helper.make_node("AveragePool", ["t"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1, name="head"),
    ]
    return nets.model(nodes, {"x": SHAPE}, ["y"], constants())


def samples(count=8):
    """Noise from -1 to 1, both ends among it."""
    rng = np.random.default_rng(5)
    found = rng.uniform(-1, 1, (count, *SHAPE)).astype(np.float32)
    found[:, 0, 0, 0, :2] = -1, 1
    return [{"x": x} for x in found]


def beside_onnxruntime(build, path):
    """Outputs of the C runtime, and of onnxruntime's node-by-node run of the same file."""
    expected = nets.run(onnx.load(path).SerializeToString(), samples(), optimised=False)
    (name,) = (o["name"] for o in build.report().outputs)
    return np.stack([build.run(s, threads=1).outputs[name] for s in samples()]), expected


def quantize_static(net, path, types, per_channel):
    from onnxruntime.quantization import QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as quantize

    class Reader:
        left = iter(samples())

        def get_next(self):
            return next(self.left, None)

    kinds = {"S8": QuantType.QInt8, "U8": QuantType.QUInt8}
    logging.disable(logging.WARNING)
    ir.save(net, path.with_suffix(".float.onnx"))
    quantize(
        path.with_suffix(".float.onnx"), path, Reader(), quant_format=QuantFormat.QDQ,
        activation_type=kinds[types[:2]], weight_type=kinds[types[2:]], per_channel=per_channel,
    )  # fmt: skip
    logging.disable(logging.NOTSET)


def built(path):
    return tilewright.build(
        path, target="ax650n", npu_modes=["NPU1"], output=path.with_suffix(".built")
    )


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("types", ["S8S8", "U8S8", "U8U8"])
def test_nearly_dead_channels_of_quantize_static(types, per_channel, tmp_path):
    quantize_static(network(), tmp_path / "q.onnx", types, per_channel)
    build = built(tmp_path / "q.onnx")
    report = json.loads((build.folder / "report.json").read_text("utf-8"))
    assert report["nodes_cpu"] == []
    got, expected = beside_onnxruntime(build, tmp_path / "q.onnx")
    assert nets.sqnr(expected, got) > 33
    texts = {kind: [n["text"] for n in report["notes"] if n["code"] == kind] for kind in KINDS}
    raised, clipped = texts.values()
    if not per_channel:
        assert not raised and not clipped
        return
    assert raised[0] == (
        "n0_Conv: the weight scales of 1 of 8 output channels were raised by factors of at most 2, "
        "so that their accumulators stay in range"
    )
    # onnxruntime keeps the biases of s8 weights in range, those of u8 weights it clips.
    assert len(clipped) == (4 if types == "U8U8" else 0)


def test_nncf_form(tmp_path):
    """Float biases, weights within -127..127 whose scales know nothing of them, an open output."""
    net = network()
    (tmp_path / "q.onnx").write_bytes(nncf_form(net, constants()))
    build = built(tmp_path / "q.onnx")
    assert build.report().nodes_cpu == ()
    assert {n["code"] for n in build.report().notes} == {"raised-weight-scales"}
    assert len(build.report().notes) == 4
    got, expected = beside_onnxruntime(build, tmp_path / "q.onnx")
    assert nets.sqnr(expected, got) > 33


def nncf_form(net, arrays):
    """Pairs around what products and pools read, quantized weights beside float biases."""
    nodes = list(ir.to_proto(net).graph.node)
    made, reads = [], {}
    for name, array in ranges(net, ["x", "r1", "r2", "t", "f"]).items():
        low, high = min(array.min(), 0), max(array.max(), 0)
        scale = np.float32((high - low) / 255)
        parameters = {f"{name}.s": scale, f"{name}.z": np.uint8(np.rint(-low / scale))}
        arrays |= parameters
        pair = [
            helper.make_node("QuantizeLinear", [name, *parameters], [f"{name}.q"]),
            helper.make_node("DequantizeLinear", [f"{name}.q", *parameters], [f"{name}.d"]),
        ]
        reads[name] = (pair, f"{name}.d")
    for name, axis in (("w1", 0), ("w2", 0), ("w3", 1), ("w4", 0)):
        array = arrays.pop(name)
        others = tuple(a for a in range(array.ndim) if a != axis)
        scale = (np.abs(array).max(axis=others, keepdims=True) / 127).astype(np.float32)
        codes = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
        parameters = {f"{name}.s": scale.reshape(-1), f"{name}.z": np.zeros(scale.size, np.int8)}
        arrays |= {f"{name}.q": codes, **parameters}
        weight = [f"{name}.q", *parameters]
        made.append(helper.make_node("DequantizeLinear", weight, [name], axis=axis))
    for node in nodes:
        for i, name in enumerate(node.input):
            pair, read = reads.get(name, ([], name))
            made += [n for n in pair if n not in made]
            node.input[i] = read
        made.append(node)
    return ir.to_proto(nets.model(made, {"x": SHAPE}, ["y"], arrays)).SerializeToString()


def ranges(net, names):
    """Values of the float network on all samples."""
    proto = ir.to_proto(net)
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n != "x")
    session = nets.session(proto.SerializeToString())
    runs = [session.run(names[1:], s) for s in samples()]
    return {"x": np.stack([s["x"] for s in samples()])} | {
        n: np.stack([r[i] for r in runs]) for i, n in enumerate(names[1:])
    }
