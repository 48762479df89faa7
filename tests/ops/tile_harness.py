"""Runs the instructions of tiles on bytes, in plain NumPy, and compares them with `reference`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tile_instructions
from tile_instructions import rounded

from tilewright.graph import DType, TensorType
from tilewright.ops.protocol import NpuOperator, Region, Span, Tile, View, region_shape, whole
from tilewright.program import isa
from tilewright.program.isa import Instruction

MEMORY = 1 << 16


class Memory:
    """Bytes with a count of how often each was written."""

    def __init__(self) -> None:
        self.data = np.zeros(MEMORY, np.uint8)
        self.writes = np.zeros(MEMORY, np.int64)
        self._end = 64

    def reserve(self, size: int) -> int:
        address, self._end = self._end, self._end + size + 3
        assert self._end < MEMORY
        return address

    def read(self, at: Any, dtype: int) -> Any:
        kind = DType(dtype).numpy
        spans = np.asarray(at)[..., None] + np.arange(kind.itemsize)
        return np.ascontiguousarray(self.data[spans]).view(kind)[..., 0].astype(np.int64)

    def write(self, at: Any, values: Any, dtype: int) -> None:
        kind = DType(dtype).numpy
        spans = np.asarray(at)[..., None] + np.arange(kind.itemsize)
        stored = np.ascontiguousarray(np.broadcast_to(values, np.shape(at)), kind)
        assert (stored == values).all()
        self.data[spans] = stored[..., None].view(np.uint8)
        np.add.at(self.writes, spans, 1)

    def records(self, address: int, count: int, record: type[Any]) -> Any:
        size = record.packed_size() * count
        return self.data[address : address + size].view(record.numpy_dtype())


def grid(base: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
    axes = [np.arange(n) * s for n, s in zip(shape, strides, strict=True)]
    return base + functools.reduce(np.add.outer, axes, np.int64(0))


def finish(i: Any, memory: Memory, at: Any, r: Any) -> None:
    memory.write(at, np.clip(r + i.zeros[1], *i.clamp), i.types[1])


def execute(i: Any, memory: Memory) -> None:
    match i:
        case isa.Rescale():
            x = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0]) - i.zeros[0]
            finish(i, memory, grid(i.y, i.shape, i.y_strides), rounded(x, i.multiplier, i.shift))
        case isa.Fill():
            memory.write(grid(i.y, i.shape, i.y_strides), i.value, i.type)
        case isa.Reduce():
            x = memory.read(grid(i.x, i.shape, i.x_strides), i.types[0]) - i.zeros[0]
            acc = x.sum(axis=(1, 2))
            if i.pre_shift:
                acc = (acc + (1 << (i.pre_shift - 1))) >> i.pre_shift
            at = grid(i.y, (i.shape[0], i.shape[3]), i.y_strides)
            finish(i, memory, at, rounded(acc, i.multiplier, i.shift))
        case isa.MaxPool() | isa.AveragePool():
            pool(i, memory)
        case isa.Resize():
            resize(i, memory)
        case _:
            tile_instructions.execute(i, memory, grid)


def pool(i: Any, memory: Memory) -> None:
    size = DType(i.types[0]).bytes
    for r, c in itertools.product(range(i.out_rows), range(i.out_columns)):
        at = grid(
            i.output + r * i.out_strides[0] + c * i.out_strides[1],
            [i.channels],
            [DType(i.types[1]).bytes],
        )
        present, count = [], 0
        for u, v in itertools.product(range(i.kernel[0]), range(i.kernel[1])):
            row = r * i.stride[0] - i.pad[0] + u * i.dilation[0]
            column = c * i.stride[1] - i.pad[1] + v * i.dilation[1]
            if 0 <= row < i.in_rows and 0 <= column < i.in_columns:
                base = i.input + row * i.in_strides[0] + column * i.in_strides[1]
                present.append(memory.read(grid(base, [i.channels], [size]), i.types[0]))
            if isinstance(i, isa.AveragePool):
                inside = (
                    i.counted[0] <= row < i.counted[1] and i.counted[2] <= column < i.counted[3]
                )
                count += inside
        if isinstance(i, isa.MaxPool):
            value = rounded(np.max(present, axis=0) - i.zeros[0], i.multiplier, i.shift)
        else:
            records = memory.records(i.counts, i.count_entries, isa.CountRecord)
            (record,) = records[records["count"] == count]
            total = sum(present, np.zeros(i.channels, np.int64)) - len(present) * i.zeros[0]
            value = rounded(total, record["multiplier"], record["shift"])
        finish(i, memory, at, value)


def resize(i: Any, memory: Memory) -> None:
    rows = memory.records(i.rows, i.out_rows * i.taps, isa.TapRecord).reshape(-1, i.taps)
    columns = memory.records(i.columns, i.out_columns * i.taps, isa.TapRecord).reshape(-1, i.taps)
    channels = [i.channels], [DType(i.types[0]).bytes]
    for r, c in itertools.product(range(i.out_rows), range(i.out_columns)):
        acc = np.zeros(i.channels, np.int64)
        for (y, cy), (x, cx) in itertools.product(rows[r].tolist(), columns[c].tolist()):
            y, x = y - i.origin[0], x - i.origin[1]
            assert 0 <= y < i.in_rows and 0 <= x < i.in_columns
            at = grid(i.input + y * i.in_strides[0] + x * i.in_strides[1], *channels)
            acc += cy * cx * (memory.read(at, i.types[0]) - i.zeros[0])
        at = grid(
            i.output + r * i.out_strides[0] + c * i.out_strides[1],
            [i.channels],
            [DType(i.types[1]).bytes],
        )
        finish(i, memory, at, rounded(acc, i.multiplier, i.shift))


def place(memory: Memory, t: TensorType, box: Region, rng: np.random.Generator) -> View:
    """A view of `box`; the parts along one axis may lie further apart than they need."""
    strides, size = [], t.dtype.bytes
    padded = int(rng.integers(0, 2 * len(box) + 1))
    for axis in reversed(range(len(box))):
        strides.append(size)
        size = box[axis].size * size + (3 * t.dtype.bytes if axis == padded else 0)
    return View(t, box, memory.reserve(size), tuple(reversed(strides)))


def cut(n: int, step: int, rng: np.random.Generator) -> list[Span]:
    points = {int(p) * step for p in rng.integers(0, -(-n // step), rng.integers(0, 3))}
    edges = sorted({0, n, *points})
    return [Span(a, b) for a, b in itertools.pairwise(edges)]


def tiles(op: NpuOperator, types: Sequence[TensorType], out: TensorType, rng: Any) -> list[Region]:
    steps = {s.axis: s.step for s in op.splits(types, out)}
    axes = [cut(n, steps[a], rng) if a in steps else [Span(0, n)] for a, n in enumerate(out.shape)]
    return list(itertools.product(*axes))


def check_tiles(
    op: NpuOperator,
    arrays: Sequence[Any],
    types: Sequence[TensorType],
    out: TensorType,
    rng: np.random.Generator,
) -> None:
    """Cut the output at random, run each tile, and compare codes and write counts."""
    (expected,) = op.reference(arrays, types, [out])
    assert expected.shape == out.shape and expected.dtype == out.dtype.numpy
    for region in tiles(op, types, out, rng):
        memory = Memory()
        views = []
        for array, t, need in zip(arrays, types, op.needs(region, types, out), strict=True):
            assert all(0 <= s.start < s.stop <= n for s, n in zip(need, t.shape, strict=True))
            box = need if rng.integers(0, 2) else whole(t.shape)
            view = place(memory, t, box, rng)
            part = array[tuple(slice(*s) for s in box)]
            memory.write(grid(view.address, part.shape, view.strides), part, t.dtype)
            views.append(view)
        constants = {}
        for name, array in op.constant_arrays().items():
            rows = np.ascontiguousarray(array[slice(*op.constant_rows(name, region))])
            constants[name] = memory.reserve(rows.nbytes)
            memory.data[constants[name] :][: rows.nbytes] = rows.view(np.uint8).reshape(-1)
        target = place(memory, out, region, rng)
        memory.writes[:] = 0
        workspace = memory.reserve(op.workspace(region, types, out))
        instructions: list[Instruction] = op.emit(
            Tile(region, target, tuple(views), constants, workspace)
        )
        for i in instructions:
            assert type(i).unpack(i.pack()) == i
            execute(i, memory)
        at = grid(target.address, region_shape(region), target.strides)
        got = memory.read(at, out.dtype)
        np.testing.assert_array_equal(got, expected[tuple(slice(*s) for s in region)])
        spans = at[..., None] + np.arange(out.dtype.bytes)
        assert (memory.writes[spans] == 1).all()
        assert memory.writes.sum() == spans.size
        assert max(op.work(region, types, out)) > 0
