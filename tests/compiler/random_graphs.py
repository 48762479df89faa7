"""Random integer graphs of operators that stress the compiler: halos, slices, joins, broadcasts."""

from __future__ import annotations

import numpy as np

from tilewright import numerics
from tilewright.graph import Border, DType, Graph, Node, Operator, TensorType
from tilewright.ops.add import Add
from tilewright.ops.attention import Attention
from tilewright.ops.concat import Concat
from tilewright.ops.conv import Conv
from tilewright.ops.matmul import MatMul
from tilewright.ops.pool import MaxPool
from tilewright.ops.product import channel_records
from tilewright.ops.reduce import Reduce
from tilewright.ops.reshape import Reshape
from tilewright.ops.slicing import Slice
from tilewright.ops.table import Table
from tilewright.ops.transpose import Transpose

UNIT = numerics.multiplier(1.0)
SCALE, ZERO = 0.25, 100


class RandomGraph:
    """Grows a graph of u8 tensors, one node after another."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: dict[str, TensorType] = {}
        self.nodes: list[Node] = []

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def tensor(self, name: str, shape: tuple[int, ...]) -> str:
        self.tensors[name] = TensorType(DType.U8, shape, SCALE, ZERO)
        return name

    def add(self, op: Operator, inputs: list[str]) -> str:
        index = len(self.nodes)
        (shape,) = op.infer([self.tensors[n] for n in inputs], f"node{index}")
        name = self.tensor(f"t{index}", shape)
        self.nodes.append(Node(f"node{index}", op, tuple(inputs), (name,), ()))
        return name

    def conv(self, x: str) -> str:
        rng = self.rng
        channels = self.tensors[x].shape[3]
        kernel, stride = self.integer(1, 3), self.integer(1, 2)
        depthwise = rng.random() < 0.4
        out = channels if depthwise else self.integer(1, 24)
        weight = rng.integers(-127, 128, (out, kernel, kernel, 1 if depthwise else channels))
        m, s = numerics.multiplier(1 / (40 * np.sqrt(weight[0].size)))
        full = np.ones(out, np.int64)
        records = channel_records(
            rng.integers(-999, 999, out), m * full, s * full, 0 * full, 255 * full
        )
        p = (kernel - 1) // 2
        return self.add(
            Conv(
                groups=channels if depthwise else 1, stride=(stride, stride), dilation=(1, 1),
                pads=(p, p, kernel - 1 - p, kernel - 1 - p), weight_type=DType.S8, weight_zero=0,
                pre_shift=0, table_multiplier=0, table_shift=0, weight=weight.astype(np.int8),
                channels=records, table=None,
            ),
            [x],
        )  # fmt: skip

    def sum(self, x: str, other: str) -> str:
        p = numerics.add_parameters(SCALE, SCALE, SCALE, False, "add")
        return self.add(Add(ma=p.ma, mb=p.mb, shift=p.shift, lo=0, hi=255), [x, other])

    def product(self, x: str, other: str) -> str:
        """Every row of pixels times all pixels of the other's row."""
        m, s = numerics.multiplier(1 / (60 * np.sqrt(self.tensors[x].shape[3])))
        return self.add(MatMul(2, (0, 1, 3, 2), 0, m, s, 0, 255), [x, other])

    def attend(self, x: str, other: str) -> str:
        """Rows of the image are batch entries; biases repeat in every second one."""
        _, h, w, c = self.tensors[x].shape
        score = numerics.multiplier(400 / (60 * 60 * np.sqrt(c)))
        bias = self.rng.integers(-2000, 2000, (2 * w, w)).astype(np.int16)
        op = Attention(
            2, 0, *score, 0, 62, *numerics.softmax_multiplier(2.0**-8),
            *numerics.multiplier(2.0**-16), bias_step=1, bias_batch=(1, h),
            bias_first=tuple(w * (i % 2) for i in range(h)), bias=bias,
        )  # fmt: skip
        return self.add(op, [x, other, x])

    def pool(self, x: str) -> str:
        op = MaxPool(
            kernel=(3, 3), stride=(2, 2), dilation=(1, 1), pads=(1, 1, 1, 1),
            multiplier=UNIT.m, shift=UNIT.shift,
        )  # fmt: skip
        return self.add(op, [x])

    def slice(self, x: str) -> str:
        shape = self.tensors[x].shape
        steps = [1, self.integer(1, 2), self.integer(1, 2), 1]
        starts = [0, *(self.integer(0, min(1, n - 1)) for n in shape[1:])]
        sizes = [-(-(n - a) // s) for n, a, s in zip(shape, starts, steps, strict=True)]
        op = Slice(
            multiplier=UNIT.m, shift=UNIT.shift, starts=tuple(starts), steps=tuple(steps),
            sizes=tuple(sizes),
        )  # fmt: skip
        return self.add(op, [x])

    def concat(self, x: str, other: str) -> str:
        axis = 3
        op = Concat(axis=axis, multipliers=(UNIT.m,) * 2, shifts=(UNIT.shift,) * 2)
        return self.add(op, [x, other])

    def transpose(self, x: str) -> str:
        return self.add(Transpose((0, 2, 1, 3)), [x])

    def reshape(self, x: str) -> str:
        n, h, w, c = self.tensors[x].shape
        return self.add(Reshape((n, w, h, c)), [x])

    def table(self, x: str) -> str:
        return self.add(Table(self.rng.integers(0, 256, 256).astype(np.uint8)), [x])

    def mean(self, x: str) -> str:
        _, h, w, _ = self.tensors[x].shape
        m, s = numerics.multiplier(1 / (h * w))
        return self.add(
            Reduce(axes=(1, 3), pre_shift=0, multiplier=m, shift=s, clamp=(0, 255)), [x]
        )

    def grow(self, x: str) -> str:
        alike = [n for n, t in self.tensors.items() if t.shape == self.tensors[x].shape and n != x]
        same_image = [
            n for n, t in self.tensors.items() if t.shape[:3] == self.tensors[x].shape[:3]
        ]
        choices = [self.conv, self.conv, self.slice, self.transpose, self.table, self.reshape]
        if min(self.tensors[x].shape[1:3]) > 2:
            choices.append(self.pool)
        if alike:
            choices += [lambda x: self.sum(x, alike[self.integer(0, len(alike) - 1)])] * 2
            choices.append(lambda x: self.product(x, alike[self.integer(0, len(alike) - 1)]))
            choices.append(lambda x: self.attend(x, alike[self.integer(0, len(alike) - 1)]))
        choices.append(lambda x: self.concat(x, same_image[self.integer(0, len(same_image) - 1)]))
        return choices[self.integer(0, len(choices) - 1)](x)


def random_graph(seed: int) -> Graph:
    """A graph of about ten nodes with one input and one or two outputs."""
    grown = RandomGraph(seed)
    shape = (1, grown.integer(7, 26), grown.integer(5, 20), grown.integer(1, 12))
    x = grown.tensor("x", shape)
    middle = x
    for i in range(grown.integer(3, 10)):
        x = grown.grow(x)
        middle = x if i == 2 else middle
    ends = [x, grown.mean(x)] if seed % 3 == 0 else [x]
    if seed % 4 == 0 and middle not in (*ends, "x"):
        ends.append(middle)
    used = set(ends)
    kept = []
    for node in reversed(grown.nodes):
        if node.outputs[0] in used:
            kept.append(node)
            used.update(node.inputs)
    used.add("x")
    return Graph(
        f"random{seed}",
        {n: t for n, t in grown.tensors.items() if n in used},
        tuple(reversed(kept)),
        (Border("x", "x", shape, (0, 1, 2, 3)),),
        tuple(Border(n, n, grown.tensors[n].shape, (0, 1, 2, 3)) for n in ends),
    )
