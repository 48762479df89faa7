"""Random operators with operands that fit them: attributes of every kind, odd shapes, all types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright import numerics
from tilewright.graph import DType, Operator, TensorType
from tilewright.numerics import Multiplier
from tilewright.ops.add import Add, AddConstant
from tilewright.ops.attention import Attention
from tilewright.ops.clamp import Rescale
from tilewright.ops.concat import Concat
from tilewright.ops.constant import Constant
from tilewright.ops.conv import Conv
from tilewright.ops.deconv import ConvTranspose
from tilewright.ops.dense import Dense
from tilewright.ops.group_norm import GroupNorm
from tilewright.ops.l2_norm import L2Norm
from tilewright.ops.layer_norm import LayerNorm
from tilewright.ops.matmul import MatMul, product_ratio
from tilewright.ops.mul import Mul
from tilewright.ops.normalization import affine_records
from tilewright.ops.pad import Pad
from tilewright.ops.pool import AveragePool, MaxPool, counted_taps
from tilewright.ops.prelu import ParametricRelu
from tilewright.ops.product import channel_records
from tilewright.ops.reduce import Reduce
from tilewright.ops.reshape import Reshape
from tilewright.ops.resize import Resize
from tilewright.ops.rms_norm import RmsNorm
from tilewright.ops.slicing import Slice
from tilewright.ops.softmax import Softmax
from tilewright.ops.space import DepthToSpace, SpaceToDepth
from tilewright.ops.table import Table, Table16
from tilewright.ops.transpose import Transpose
from tilewright.program.isa import CountRecord, TapRecord

BYTES = (DType.U8, DType.S8)
ACTIVATIONS = (DType.U8, DType.S8, DType.S16)


class Drawn(NamedTuple):
    op: Operator
    inputs: tuple[TensorType, ...]
    output: TensorType


class Draw:
    """Random numbers in the terms of operators."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, lo: int, hi: int) -> int:
        """In [lo, hi]."""
        return int(self.rng.integers(lo, hi + 1))

    def ints(self, count: int, lo: int, hi: int) -> tuple[int, ...]:
        return tuple(self.int(lo, hi) for _ in range(count))

    def choice(self, values: Any) -> Any:
        return values[self.int(0, len(values) - 1)]

    def shape(self, rank: int, most: int = 9) -> tuple[int, ...]:
        return self.ints(rank, 1, most)

    def type(self, shape: tuple[int, ...], dtypes: Any = ACTIVATIONS) -> TensorType:
        dtype = self.choice(dtypes)
        zero = 0 if dtype is DType.S16 else self.int(*dtype.range)
        scale = numerics.f32(2.0 ** self.rng.uniform(-8, 1))
        return TensorType(dtype, shape, scale, zero)

    def maybe_same(self, x: TensorType, shape: tuple[int, ...]) -> TensorType:
        """The encoding of `x` or another."""
        if self.int(0, 1):
            return TensorType(x.dtype, shape, x.scale, x.zero_point)
        return self.type(shape)

    def multiplier(self, low: float = -12, high: float = 3) -> Multiplier:
        return numerics.multiplier(2.0 ** self.rng.uniform(low, high))

    def clamp(self, y: TensorType) -> tuple[int, int]:
        lo, hi = y.dtype.range
        if self.int(0, 1):
            return lo, hi
        a, b = sorted(self.ints(2, lo, hi))
        return a, b

    def records(self, count: int, y: TensorType, bias: int, ratio: float) -> Any:
        """ChannelRecords around `ratio`, some far from it, some silent."""
        pairs = [numerics.multiplier(ratio * 2.0 ** self.rng.uniform(-2, 2)) for _ in range(count)]
        for i in range(count):
            odd = self.rng.random()
            if odd < 0.03:
                pairs[i] = Multiplier(0, 62)
            elif odd < 0.06:
                pairs[i] = numerics.multiplier(2.0 ** self.rng.uniform(-38, -20))
            elif odd < 0.08:
                pairs[i] = numerics.multiplier(2.0 ** self.rng.uniform(0, 8))
        limits = [self.clamp(y) for _ in range(count)]
        return channel_records(
            self.rng.integers(-bias, bias + 1, count),
            np.array([p.m for p in pairs]),
            np.array([p.shift for p in pairs]),
            np.array([lo for lo, _ in limits]),
            np.array([hi for _, hi in limits]),
        )


def _product(draw: Draw, x: TensorType, y: TensorType, shape: tuple[int, ...]) -> dict[str, Any]:
    """Weights and epilogue of a product whose weights have this shape."""
    kind = draw.choice((DType.S8,) * 4 + (DType.U8, DType.S16))
    zero = draw.int(0, 255) if kind is DType.U8 else 0
    lo, hi = (-127, 127) if kind is DType.S8 else kind.range
    taps = int(np.prod(shape[1:]))
    wide = DType.S16 in (x.dtype, kind)
    typical = (20000 if x.dtype is DType.S16 else 80) * (20000 if kind is DType.S16 else 70)
    weight = draw.rng.integers(lo, hi + 1, shape).astype(kind.numpy)
    bound = taps * 2**15 * 2**15 if wide else 0
    pre_shift = numerics.pre_shift_for(bound) if wide else 0
    ratio = 60 / (typical * np.sqrt(taps)) * (200 if y.dtype is DType.S16 else 1)
    table, m, shift = None, 0, 0
    if draw.int(0, 4) == 0:
        table = np.sort(draw.rng.integers(-32767, 32768, 513)).astype(np.int16)
        m, shift = numerics.multiplier(2.0 ** draw.rng.uniform(-16, -7))
        ratio *= 100
    return {
        "weight_type": kind,
        "weight_zero": zero,
        "pre_shift": pre_shift,
        "table_multiplier": m,
        "table_shift": shift,
        "weight": weight,
        "channels": draw.records(shape[0], y, typical * 10, ratio * 2.0**pre_shift),
        "table": table,
    }


def conv(draw: Draw) -> Drawn:
    kernel = draw.choice([(1, 1), (3, 3), (5, 5), draw.ints(2, 1, 4)])
    stride, dilation = draw.choice([(1, 1), (2, 2), draw.ints(2, 1, 3)]), (1, 1)
    if draw.int(0, 3) == 0:
        dilation = draw.ints(2, 1, 3)
    pads = draw.choice([(0, 0, 0, 0), draw.ints(4, 0, 3)])
    depthwise = draw.int(0, 2) == 0
    if depthwise:
        groups = draw.choice([draw.int(1, 9), 16, 32, 40, 72, 100])
        channels, out = groups, groups * draw.choice((1, 1, 1, 2))
    else:
        groups = draw.choice((1, 1, 1, 2, 3))
        channels, out = draw.int(1, 9) * groups, draw.choice((draw.int(1, 9), 17, 40, 70)) * groups
    size = [
        max(draw.int(1, 12), (k - 1) * d + 1 - before - after)
        for k, d, before, after in zip(kernel, dilation, pads[:2], pads[2:], strict=True)
    ]
    x = draw.type((draw.int(1, 2), *size, channels), (*BYTES, *BYTES, DType.S16))
    spatial = [
        (n + before + after - (k - 1) * d - 1) // s + 1
        for n, k, s, d, before, after in zip(
            size, kernel, stride, dilation, pads[:2], pads[2:], strict=True
        )
    ]
    y = draw.type((x.shape[0], *spatial, out), (*BYTES, *BYTES, DType.S16))
    fields = _product(draw, x, y, (out, *kernel, channels // groups))
    return Drawn(
        Conv(groups=groups, stride=stride, dilation=dilation, pads=pads, **fields), (x,), y
    )


def conv_transpose(draw: Draw) -> Drawn:
    groups = draw.choice((1, 1, 2, 3))
    channels, out = draw.int(1, 6) * groups, draw.int(1, 6) * groups
    kernel, stride, dilation = draw.ints(2, 1, 4), draw.ints(2, 1, 3), draw.ints(2, 1, 2)
    x = draw.type((draw.int(1, 2), draw.int(1, 6), draw.int(1, 6), channels))
    extra = draw.ints(2, 0, 1)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[1:3], stride, kernel, dilation, extra, strict=True)
    ]
    pads = tuple(draw.int(0, max(0, (full[i % 2] - 1) // 2)) for i in range(4))
    spatial = [full[i] - pads[i] - pads[i + 2] for i in range(2)]
    y = draw.type((x.shape[0], *spatial, out))
    fields = _product(draw, x, y, (out, *kernel, channels // groups))
    op = ConvTranspose(
        groups=groups, stride=stride, dilation=dilation, pads=pads, output_padding=extra, **fields
    )
    return Drawn(op, (x,), y)


def dense(draw: Draw) -> Drawn:
    lead, width = draw.shape(draw.int(0, 3)), draw.choice((draw.int(1, 40), 64, 130))
    out = draw.choice((draw.int(1, 9), 24, 64, 150))
    x, y = draw.type((*lead, width)), draw.type((*lead, out))
    return Drawn(Dense(**_product(draw, x, y, (out, width))), (x,), y)


def matmul(draw: Draw) -> Drawn:
    rank = draw.int(2, 5)
    row_axis, last = draw.int(0, rank - 2), rank - 1
    rows, columns = (draw.choice((1, draw.int(2, 9), 70)) for _ in range(2))
    terms = draw.choice((draw.int(1, 9), 32, 67))
    batch = [draw.int(1, 3) for _ in range(rank)]
    a_shape = [n if draw.int(0, 3) else 1 for n in batch]
    b_roles = [n if m == 1 or draw.int(0, 3) else 1 for n, m in zip(batch, a_shape, strict=True)]
    shape = [max(n, m) for n, m in zip(a_shape, b_roles, strict=True)]
    a_shape[row_axis], a_shape[last] = rows, terms
    b_roles[row_axis], b_roles[last] = terms, columns
    shape[row_axis], shape[last] = rows, columns
    axes = tuple(int(i) for i in draw.rng.permutation(rank))
    a, b = draw.type(tuple(a_shape)), draw.type(tuple(b_roles[i] for i in axes))
    y = draw.type(tuple(shape))
    _, pre_shift = product_ratio(terms, a, b, "matmul")
    reach = a.reach * b.reach * np.sqrt(terms) / 2.0**pre_shift
    m = numerics.multiplier(y.dtype.range.hi / reach * 2.0 ** draw.rng.uniform(-2, 3))
    op = MatMul(row_axis, axes, pre_shift, draw.choice((m.m, m.m, -m.m)), m.shift, *draw.clamp(y))
    return Drawn(op, (a, b), y)


def attention(draw: Draw) -> Drawn:
    rank = draw.int(2, 5)
    row_axis = draw.int(0, rank - 2)
    queries, keys = (draw.choice((1, draw.int(2, 20), 70)) for _ in range(2))
    depth, values = (draw.choice((1, draw.int(2, 9), 20)) for _ in range(2))
    batch = [draw.int(1, 3) for _ in range(rank - 1)]
    del batch[0]

    def shape(lead: list[int], rows: int, last: int) -> tuple[int, ...]:
        return (*lead[:row_axis], rows, *lead[row_axis:], last)

    parts = [[n if draw.int(0, 4) else 1 for n in batch] for _ in range(2)]
    q = draw.type(shape(batch, queries, depth))
    k, v = draw.type(shape(parts[0], keys, depth)), draw.type(shape(parts[1], keys, values))
    y = draw.type(shape(batch, queries, values))
    _, pre_shift = product_ratio(depth, q, k, "attention")
    spread = 2.0 ** draw.rng.uniform(8, 16)
    typical = q.reach * k.reach * np.sqrt(depth) / 4 / 2.0**pre_shift
    score = numerics.multiplier(spread / typical)
    inputs = [q, k, v]
    if draw.int(0, 2) == 0:
        lead = [n if draw.int(0, 1) else 1 for n in batch]
        inputs.append(draw.type(shape(lead, draw.choice((1, queries)), draw.choice((1, keys)))))
    mask = numerics.multiplier(spread / inputs[-1].reach)
    bias, step, first = None, 0, ()
    if draw.int(0, 1):
        step, entries = draw.int(0, 1), int(np.prod(batch))
        kind, most = draw.choice(((np.int16, 32767), (np.int32, 131071)))
        rows = draw.int(1, 3) + step * (queries - 1)
        bias = draw.rng.integers(-most, most + 1, (rows, keys)).astype(kind)
        first = draw.ints(entries, 0, rows - 1 - step * (queries - 1))
    exponent = numerics.softmax_multiplier(2.0 ** draw.rng.uniform(-14, -5))
    ratio = y.dtype.range.hi / v.reach * 2.0 ** draw.rng.uniform(-2, 2)
    op = Attention(
        row_axis, pre_shift, draw.choice((score.m, -score.m)), score.shift, *mask, *exponent,
        *numerics.multiplier(ratio * 2.0**-16), step, tuple(batch) if first else (), first, bias,
    )  # fmt: skip
    return Drawn(op, tuple(inputs), y)


def _broadcast(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape of a result and of two operands."""
    shape = draw.shape(draw.int(1, 4), 12)
    if draw.int(0, 3) == 0:
        shape = (*shape[:-1], 300)
    first = tuple(n if draw.int(0, 4) else 1 for n in shape)
    second = tuple(n if m == 1 or draw.int(0, 3) else 1 for n, m in zip(shape, first, strict=True))
    return shape, first, second


def add(draw: Draw) -> Drawn:
    shape, first, second = _broadcast(draw)
    a, b, y = draw.type(first), draw.type(second), draw.type(shape)
    wide = DType.S16 in (a.dtype, b.dtype, y.dtype)
    p = numerics.add_parameters(a.scale, b.scale, y.scale, wide, "add")
    mb = p.mb if draw.int(0, 1) else -p.mb
    return Drawn(Add(p.ma, mb, p.shift, *draw.clamp(y)), (a, b), y)


def add_constant(draw: Draw) -> Drawn:
    shape, first, second = _broadcast(draw)
    a, y = draw.type(first), draw.type(shape)
    wide_output = y.dtype is DType.S16
    wide = wide_output or a.dtype is DType.S16
    values = draw.rng.normal(0, 50 * y.scale, second)
    ma, c, shift = numerics.add_constant_parameters(
        a.scale, y.scale, values, wide, wide_output, "add"
    )
    return Drawn(AddConstant(draw.choice((ma, -ma)), shift, *draw.clamp(y), c), (a,), y)


def mul(draw: Draw) -> Drawn:
    shape, first, second = _broadcast(draw)
    a, b, y = draw.type(first), draw.type(second), draw.type(shape)
    m = draw.multiplier(-20, 0)
    return Drawn(Mul(draw.choice((m.m, -m.m)), m.shift, *draw.clamp(y)), (a, b), y)


def table(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    x, y = draw.type(shape, BYTES), draw.type(shape)
    entries = draw.rng.integers(*y.dtype.range, 256).astype(y.dtype.numpy)
    return Drawn(Table(entries), (x,), y)


def table16(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    x, y = draw.type(shape, (DType.S16,)), draw.type(shape)
    entries = draw.rng.integers(-32767, 32768, 513).astype(np.int16)
    return Drawn(Table16(*draw.multiplier(-16, -6), *draw.clamp(y), entries), (x,), y)


def parametric_relu(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4), 20)
    x, y = draw.type(shape), draw.type(shape)
    count = shape[-1]
    slopes = [draw.multiplier() for _ in range(count)]
    m = np.array([draw.choice((s.m, -s.m)) for s in slopes])
    records = channel_records(
        np.zeros(count, np.int64), m, np.array([s.shift for s in slopes]),
        np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip
    return Drawn(ParametricRelu(*draw.multiplier(), *draw.clamp(y), records), (x,), y)


def rescale(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    x, y = draw.type(shape), draw.type(shape)
    m = draw.multiplier()
    return Drawn(Rescale(draw.choice((m.m, -m.m)), m.shift, *draw.clamp(y)), (x,), y)


def softmax(draw: Draw) -> Drawn:
    shape = (*draw.shape(draw.int(0, 3)), draw.choice((1, 2, 10, 300)))
    x, y = draw.type(shape), draw.type(shape)
    exponent = numerics.softmax_multiplier(x.scale)
    return Drawn(Softmax(*exponent, *draw.multiplier(-17, -7)), (x,), y)


def _affine_end(draw: Draw, y: TensorType, count: int, group: int, bits: int) -> dict[str, Any]:
    """Fields of a normalisation; some of its outputs saturate, some gains and offsets are odd."""
    real = draw.rng.lognormal(0, 1, count) * draw.choice((1.0, 1e-3, 1e3))
    top = float(real.max()) * np.sqrt(group)
    scale = top / y.dtype.range.hi * 2.0 ** draw.rng.uniform(-4, 1)
    beta = draw.rng.normal(0, top, count) * draw.choice((0.0, 1.0, 1e5))
    end = numerics.norm_affine(real * draw.choice((-1, 1, 0)), beta, scale, bits, "norm")
    return {
        "epsilon": draw.choice((0, 1, draw.int(0, 10**6), 2**60)),
        "shift": end.shift,
        "clamp": draw.clamp(y),
        "gains": affine_records(end.gain, end.offset),
    }


def _rows(draw: Draw) -> tuple[TensorType, TensorType, int, int]:
    """Input, output, first axis and number of elements of groups that are whole last axes."""
    shape = (*draw.shape(draw.int(0, 3)), draw.choice((1, 2, 10, 300, 6000)))
    axis = draw.int(max(0, len(shape) - 2), len(shape) - 1)
    x = draw.type(shape)
    return x, draw.type(shape), axis, int(np.prod(shape[axis:]))


def layer_norm(draw: Draw) -> Drawn:
    x, y, axis, count = _rows(draw)
    return Drawn(LayerNorm(axis=axis, **_affine_end(draw, y, count, count, 16)), (x,), y)


def rms_norm(draw: Draw) -> Drawn:
    x, y, axis, count = _rows(draw)
    return Drawn(RmsNorm(axis=axis, **_affine_end(draw, y, count, count, 16)), (x,), y)


def l2_norm(draw: Draw) -> Drawn:
    x, y, axis, _ = _rows(draw)
    return Drawn(L2Norm(axis=axis, **_affine_end(draw, y, 1, 1, 24)), (x,), y)


def group_norm(draw: Draw) -> Drawn:
    groups = draw.choice((1, 2, 7, 40))
    shape = (*draw.shape(draw.int(1, 3)), groups * draw.choice((1, 2, 5, 300)))
    group = int(np.prod(shape[1:])) // groups
    x, y = draw.type(shape), draw.type(shape)
    return Drawn(GroupNorm(groups=groups, **_affine_end(draw, y, shape[-1], group, 16)), (x,), y)


def constant(draw: Draw) -> Drawn:
    y = draw.type(draw.shape(draw.int(1, 4)))
    data = draw.rng.integers(*y.dtype.range, y.shape).astype(y.dtype.numpy)
    return Drawn(Constant(data), (), y)


def _window(draw: Draw) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    kernel, stride, dilation = draw.ints(2, 1, 4), draw.ints(2, 1, 3), draw.ints(2, 1, 2)
    pads = tuple(draw.int(0, kernel[i % 2] // 2) if dilation[i % 2] == 1 else 0 for i in range(4))
    size = [max(draw.int(1, 9), (k - 1) * d + 1) for k, d in zip(kernel, dilation, strict=True)]
    spatial = [
        (n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, n in enumerate(size)
    ]
    n, c = draw.int(1, 2), draw.choice((1, 5, 70))
    fields = {"kernel": kernel, "stride": stride, "dilation": dilation, "pads": pads}
    return fields, (n, *size, c), (n, *spatial, c)


def max_pool(draw: Draw) -> Drawn:
    fields, shape, out = _window(draw)
    x = draw.type(shape)
    m = draw.multiplier()
    return Drawn(MaxPool(multiplier=m.m, shift=m.shift, **fields), (x,), draw.maybe_same(x, out))


def average_pool(draw: Draw) -> Drawn:
    fields, shape, out = _window(draw)
    x, y = draw.type(shape), draw.type(out)
    padded = draw.int(0, 1)
    top, left, bottom, right = fields["pads"]
    counted = (0, 0, shape[1], shape[2])
    if padded:
        counted = (-top, -left, shape[1] + bottom, shape[2] + right)
    rows, columns = (
        counted_taps(
            out[1 + i], fields["kernel"][i], fields["stride"][i], fields["dilation"][i],
            fields["pads"][i], counted[i], counted[i + 2],
        )
        for i in range(2)
    )  # fmt: skip
    counts = np.unique(np.multiply.outer(rows, columns))
    records = np.zeros(len(counts), CountRecord.numpy_dtype())
    for record, count in zip(records, counts, strict=True):
        m = numerics.multiplier(2.0 ** draw.rng.uniform(-2, 1) / max(1, int(count)))
        record["count"], record["multiplier"], record["shift"] = count, m.m, m.shift
    op = AveragePool(counted=counted, clamp=draw.clamp(y), counts=records, **fields)
    return Drawn(op, (x,), y)


def reduce(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4), 12)
    if draw.int(0, 3) == 0:
        shape = (*shape[:-1], 300)
    first, end = sorted((draw.int(0, len(shape)), draw.int(0, len(shape))))
    out = (*shape[:first], *(1,) * (end - first), *shape[end:])
    x, y = draw.type(shape), draw.type(out)
    m = draw.multiplier(-10, 0)
    return Drawn(Reduce((first, end), draw.int(0, 2), *m, draw.clamp(y)), (x,), y)


def concat(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    axis, count = draw.int(0, len(shape) - 1), draw.int(1, 4)
    sizes = draw.ints(count, 1, 5)
    y = draw.type((*shape[:axis], sum(sizes), *shape[axis + 1 :]))
    inputs = tuple(draw.maybe_same(y, (*shape[:axis], n, *shape[axis + 1 :])) for n in sizes)
    pairs = [draw.multiplier() for _ in sizes]
    op = Concat(axis, tuple(p.m for p in pairs), tuple(p.shift for p in pairs))
    return Drawn(op, inputs, y)


def slice_(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    starts, steps, sizes = [], [], []
    for n in shape:
        start, step = draw.int(0, n - 1), draw.choice((1, 1, 2, -1, -2, 0))
        room = {0: 3}.get(
            step, (n - 1 - start) // step + 1 if step > 0 else start // max(1, -step) + 1
        )
        starts.append(start)
        steps.append(step)
        sizes.append(draw.int(1, room))
    x = draw.type(shape)
    op = Slice(*draw.multiplier(), tuple(starts), tuple(steps), tuple(sizes))
    return Drawn(op, (x,), draw.maybe_same(x, tuple(sizes)))


def pad(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    before = tuple(draw.int(-(n - 1) // 2, 3) for n in shape)
    after = tuple(draw.int(-(n - 1) // 2, 3) for n in shape)
    out = tuple(max(1, n + b + a) for n, b, a in zip(shape, before, after, strict=True))
    after = tuple(o - n - b for o, n, b in zip(out, shape, before, strict=True))
    x = draw.type(shape)
    y = draw.maybe_same(x, out)
    return Drawn(Pad(*draw.multiplier(), before, after, draw.int(*y.dtype.range)), (x,), y)


def resize(draw: Draw) -> Drawn:
    taps = draw.choice((1, 2, 4))
    n, h, w, c = draw.int(1, 2), draw.int(1, 9), draw.int(1, 9), draw.choice((1, 5, 70))
    out = draw.ints(2, 1, 9)
    axes = []
    for size, count in zip((h, w), out, strict=True):
        records = np.zeros((count, taps), TapRecord.numpy_dtype())
        records["index"] = draw.rng.integers(0, size, (count, taps))
        parts = draw.rng.integers(-200, 600, (count, taps))
        parts[:, 0] = 2048 - parts[:, 1:].sum(axis=1)
        records["coefficient"] = parts
        axes.append(records)
    m = draw.choice((numerics.multiplier(2.0**-22), draw.multiplier(-24, -21)))
    x = draw.type((n, h, w, c))
    y = draw.maybe_same(x, (n, *out, c))
    return Drawn(Resize(taps, m.m, m.shift, *axes), (x,), y)


def depth_to_space(draw: Draw) -> Drawn:
    block, (n, h, w, c) = draw.int(1, 3), draw.shape(4, 5)
    x = draw.type((n, h, w, c * block**2))
    y = draw.maybe_same(x, (n, h * block, w * block, c))
    return Drawn(DepthToSpace(*draw.multiplier(), block, draw.int(0, 1)), (x,), y)


def space_to_depth(draw: Draw) -> Drawn:
    block, (n, h, w, c) = draw.int(1, 3), draw.shape(4, 5)
    x = draw.type((n, h * block, w * block, c))
    y = draw.maybe_same(x, (n, h, w, c * block**2))
    return Drawn(SpaceToDepth(*draw.multiplier(), block), (x,), y)


def reshape(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 4))
    x = draw.type(shape)
    flat = (shape[0], x.elements // shape[0])
    return Drawn(Reshape(flat), (x,), TensorType(x.dtype, flat, x.scale, x.zero_point))


def transpose(draw: Draw) -> Drawn:
    shape = draw.shape(draw.int(1, 5))
    axes = tuple(int(a) for a in draw.rng.permutation(len(shape)))
    x = draw.type(shape)
    out = tuple(shape[a] for a in axes)
    return Drawn(Transpose(axes), (x,), TensorType(x.dtype, out, x.scale, x.zero_point))


GENERATORS: dict[str, Callable[[Draw], Drawn]] = {
    "Conv": conv,
    "Reshape": reshape,
    "Transpose": transpose,
    "Dense": dense,
    "MatMul": matmul,
    "Attention": attention,
    "ConvTranspose": conv_transpose,
    "Add": add,
    "AddConstant": add_constant,
    "Mul": mul,
    "Table": table,
    "Table16": table16,
    "ParametricRelu": parametric_relu,
    "Rescale": rescale,
    "Softmax": softmax,
    "LayerNorm": layer_norm,
    "RmsNorm": rms_norm,
    "GroupNorm": group_norm,
    "L2Norm": l2_norm,
    "Constant": constant,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "Reduce": reduce,
    "Concat": concat,
    "Slice": slice_,
    "Pad": pad,
    "Resize": resize,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
"""Operator class name -> generator."""
