"""Runs integer operators as TOSA graphs in Arm's reference model.

    python tosa_graphs.py CASES.npz RESULTS.npz

It runs in an environment of its own (`make witness` creates it), knows nothing of Tilewright and
reads plain arrays: for case i, "i/kind" and the kind's parameters; it writes "i/y".  A multiplier
and shift (M, s) are exported as (M << 7, s + 7): the same integers, in the range that is checked.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import tosa_reference_model
import tosa_serializer as ts

I8, I32 = ts.DType.INT8, ts.DType.INT32
SINGLE = ts.RoundingMode.SINGLE_ROUND


class Graph:
    """One TOSA 1.0 graph under construction."""

    def __init__(self):
        self.serializer = ts.TosaSerializer(
            "", targetMajor=1, targetMinor=0, targetPatch=0, targetDraft=False
        )
        self.inputs = []

    def input(self, array, dtype=I8):
        name = f"in{len(self.inputs)}"
        self.serializer.addInputTensor(ts.TosaSerializerTensor(name, list(array.shape), dtype))
        self.inputs.append(array)
        return name

    def constant(self, values, dtype):
        array = np.atleast_1d(values)
        return self.serializer.addConst(list(array.shape), dtype, array.reshape(-1).tolist()).name

    def middle(self, shape, dtype=I32):
        return self.serializer.addIntermediate(list(shape), dtype).name

    def output(self, shape, dtype=I8):
        return self.serializer.addOutput(list(shape), dtype).name

    def op(self, code, inputs, output, attribute, *arguments):
        made = ts.TosaSerializerAttribute()
        getattr(made, attribute)(*arguments)
        self.serializer.addOperator(code, inputs, [output], made)
        return output

    def rescale(self, x, x_type, y, y_type, m, s, zx=0, zy=0, unsigned=False):
        m, s = np.atleast_1d(m), np.atleast_1d(s)
        inputs = [
            x,
            self.constant(m, I32),
            self.constant(s, I8),
            self.constant(zx, x_type),
            self.constant(zy, y_type),
        ]
        flags = (True, SINGLE, len(m) > 1, False, unsigned)
        return self.op(ts.Op.RESCALE, inputs, y, "RescaleAttribute", *flags)

    def requantize(self, acc, shape, case):
        """acc s32 -> R24, zero point, s8 or u8: the latter takes two RESCALEs."""
        m, s = case["m"].astype(np.int64) << 7, case["s"].astype(np.int64) + 7
        if not case["unsigned"]:
            return self.rescale(acc, I32, self.output(shape), I8, m, s, 0, int(case["zy"]))
        inner = self.middle(shape, I8)
        self.rescale(acc, I32, inner, I8, m, s, 0, int(case["zy"]) - 128)
        return self.rescale(inner, I8, self.output(shape), I8, 1 << 30, 30, 0, -128, unsigned=True)

    def run(self):
        blob = bytes(self.serializer.serialize())
        outputs, status = tosa_reference_model.run(blob, self.inputs, debug_filename=os.devnull)
        if status.name != "TOSA_VALID":
            raise RuntimeError(status.name)
        return outputs[0]


def convolution(case):
    """conv, depthwise and dense: weights [O, KH, KW, I] or, depthwise, [KH, KW, C, 1]."""
    graph, depthwise = Graph(), case["kind"] == "depthwise"
    inputs = [
        graph.input(case["x"]),
        graph.constant(case["w"], I8),
        graph.constant(case["bias"], I32),
        graph.constant(int(case["zx"]), I8),
        graph.constant(int(case["zw"]), I8),
    ]
    acc = graph.middle(case["shape"])
    top, left, bottom, right = (int(v) for v in case["pads"])
    arguments = (
        [top, bottom, left, right],
        case["stride"].tolist(),
        case["dilation"].tolist(),
        False,
        I32,
    )
    if depthwise:
        graph.op(ts.Op.DEPTHWISE_CONV2D, inputs, acc, "DepthwiseConv2dAttribute", *arguments)
    else:
        graph.op(ts.Op.CONV2D, inputs, acc, "Conv2dAttribute", *arguments)
    graph.requantize(acc, case["shape"], case)
    return graph.run()


def matmul(case):
    graph = Graph()
    inputs = [
        graph.input(case["a"]),
        graph.input(case["b"]),
        graph.constant(int(case["za"]), I8),
        graph.constant(int(case["zb"]), I8),
    ]
    acc = graph.middle(case["shape"])
    graph.op(ts.Op.MATMUL, inputs, acc, "MatMulAttribute")
    graph.requantize(acc, case["shape"], case)
    return graph.run()


def rescale(case):
    graph = Graph()
    graph.requantize(graph.input(case["x"], I32), case["x"].shape, case)
    return graph.run()


def table(case):
    graph = Graph()
    inputs = [graph.input(case["x"]), graph.constant(case["table"], I8)]
    graph.op(ts.Op.TABLE, inputs, graph.output(case["x"].shape), "TableAttribute")
    return graph.run()


def max_pool(case):
    graph = Graph()
    top, left, bottom, right = (int(v) for v in case["pads"])
    graph.op(
        ts.Op.MAX_POOL2D,
        [graph.input(case["x"])],
        graph.output(case["shape"]),
        "MaxPool2dAttribute",
        case["kernel"].tolist(),
        case["stride"].tolist(),
        [top, bottom, left, right],
        ts.NanPropagationMode.PROPAGATE,
    )
    return graph.run()


def global_average(case):
    """RESCALE to s32, REDUCE_SUM over rows and columns, RESCALE."""
    graph = Graph()
    n, h, w, c = case["x"].shape
    wide = graph.middle((n, h, w, c))
    graph.rescale(graph.input(case["x"]), I8, wide, I32, 1 << 30, 30, int(case["zx"]), 0)
    rows = graph.op(ts.Op.REDUCE_SUM, [wide], graph.middle((n, 1, w, c)), "ReduceSumAttribute", 1)
    total = graph.op(ts.Op.REDUCE_SUM, [rows], graph.middle((n, 1, 1, c)), "ReduceSumAttribute", 2)
    graph.requantize(total, (n, 1, 1, c), case)
    return graph.run()


def add(case):
    """(ma*(a-za) + mb*(b-zb) + 2**(s-1)) >> s: RESCALE, MUL, ADD, RESCALE by a power of two."""
    graph = Graph()
    shape = case["a"].shape
    terms = []
    for key in ("a", "b"):
        wide, scaled = graph.middle(shape), graph.middle(shape)
        zero = int(case[f"z{key}"])
        graph.rescale(graph.input(case[key]), I8, wide, I32, 1 << 30, 30, zero, 0)
        factor = graph.constant(np.full((1,) * len(shape), int(case[f"m{key}"])), I32)
        inputs = [wide, factor, graph.constant(0, I8)]
        terms.append(graph.op(ts.Op.MUL, inputs, scaled, "MulAttribute"))
    total = graph.op(ts.Op.ADD, terms, graph.middle(shape), "AddAttribute")
    s, m = 40, 1 << (40 - int(case["s"]))
    graph.rescale(total, I32, graph.output(shape), I8, m, s, 0, int(case["zy"]))
    return graph.run()


KINDS = {
    "conv": convolution,
    "depthwise": convolution,
    "matmul": matmul,
    "rescale": rescale,
    "table": table,
    "max_pool": max_pool,
    "global_average": global_average,
    "add": add,
}


def main():
    cases_path, results_path = sys.argv[1:3]
    with np.load(cases_path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    results = {}
    for i in range(int(arrays.pop("cases"))):
        prefix = f"{i}/"
        case = {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
        case["kind"] = str(case["kind"])
        results[f"{i}/y"] = KINDS[case["kind"]](case)
    np.savez(results_path, **results)


if __name__ == "__main__":
    main()
