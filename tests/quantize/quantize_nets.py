"""Small float networks in canonical form, and feeds for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper


def model(nodes, inputs, outputs, constants, opset=21):
    """An onnx_ir model with inferred shapes; `inputs` maps names to shapes."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    for i, node in enumerate(graph.node):
        node.name = node.name or f"n{i}_{node.op_type}"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    return ir.from_proto(proto)


def conv(x, w, y, kernel=3, stride=1, group=1, bias=None, pad=None):
    pad = kernel // 2 if pad is None else pad
    return helper.make_node(
        "Conv", [x, w, *([bias] if bias else [])], [y],
        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1],
        group=group,
    )  # fmt: skip


def arrays(rng, **shapes):
    return {n: (rng.normal(size=s) * 0.4).astype(np.float32) for n, s in shapes.items()}


def classifier(seed=0):
    """Conv-Relu, depthwise, pointwise, residual Add, pooling, Gemm."""
    rng = np.random.default_rng(seed)
    constants = arrays(
        rng, w1=(8, 3, 3, 3), b1=(8,), w2=(8, 1, 3, 3), b2=(8,), w3=(8, 8, 1, 1), w4=(5, 8), b4=(5,)
    )
    constants["lo"], constants["hi"] = np.float32(0), np.float32(1.5)
    constants["shape"] = np.array([1, 8], np.int64)
    nodes = [
        conv("x", "w1", "c1", stride=2, bias="b1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        conv("r1", "w2", "c2", group=8, bias="b2"),
        helper.make_node("Clip", ["c2", "lo", "hi"], ["r2"]),
        conv("r2", "w3", "c3", kernel=1),
        helper.make_node("Add", ["c3", "r1"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["p"]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1, name="head"),
    ]
    return model(nodes, {"x": (1, 3, 16, 16)}, ["y"], constants)


def detector(box_gain=50.0, seed=1):
    """Two heads, boxes of a large range and scores in 0..1, joined at the end."""
    rng = np.random.default_rng(seed)
    constants = arrays(rng, w1=(8, 3, 3, 3), b1=(8,), wb=(4, 8, 1, 1), bb=(4,), ws=(2, 8, 1, 1))
    constants["wb"] *= box_gain
    constants["bb"] *= box_gain
    constants["bs"] = rng.normal(size=2).astype(np.float32)
    constants["shape"] = np.array([1, 6, 64], np.int64)
    nodes = [
        conv("x", "w1", "c1", bias="b1"),
        helper.make_node("Sigmoid", ["c1"], ["g1"]),
        helper.make_node("Mul", ["c1", "g1"], ["s1"]),
        conv("s1", "wb", "boxes", kernel=1, bias="bb"),
        conv("s1", "ws", "logits", kernel=1, bias="bs"),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["joined"], axis=1, name="join"),
        helper.make_node("Reshape", ["joined", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["y"], perm=[0, 2, 1]),
    ]
    return model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)


def two_branches(gain, seed=2):
    """Concat of two convolutions, the second `gain` times as large, read by a third."""
    rng = np.random.default_rng(seed)
    constants = arrays(rng, w1=(4, 3, 3, 3), w3=(4, 8, 1, 1))
    constants["w2"] = constants["w1"] * np.float32(gain)
    nodes = [
        conv("x", "w1", "c1"),
        conv("x", "w2", "c2"),
        helper.make_node("Concat", ["c1", "c2"], ["j"], axis=1),
        helper.make_node(
            "MaxPool", ["j"], ["m"], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
        ),
        conv("m", "w3", "y", kernel=1),
    ]
    return model(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants)


def feeds(net, count=8, seed=3):
    rng = np.random.default_rng(seed)
    return [
        {
            v.name: rng.normal(size=[int(d) for d in v.shape]).astype(np.float32)
            for v in net.graph.inputs
        }
        for _ in range(count)
    ]


def session(net, optimised=True):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = net if isinstance(net, bytes) else ir.to_proto(net).SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(net, samples, optimised=True):
    """First output on every sample, stacked."""
    opened = session(net, optimised)
    return np.stack([opened.run(None, dict(s))[0] for s in samples])


def sqnr(exact, other):
    exact, other = exact.astype(np.float64), other.astype(np.float64)
    return 10 * np.log10((exact**2).sum() / max(((exact - other) ** 2).sum(), 1e-30))


def set_constant(net, name, array):
    net.graph.initializers[name].const_value = ir.Tensor(array.astype(np.float32), name=name)


def constant(net, name):
    return net.graph.initializers[name].const_value.numpy().copy()


def by_op(net, op_type):
    return [node for node in net.graph if node.op_type == op_type]
