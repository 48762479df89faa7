"""How long one instruction occupies its engine.

Matrix work: multiply-accumulates, channels rounded up to the array's steps, over the rate of their
kind.  Vector work: elements or bytes of each class over that class's rate.  Where MTX and VEC count
as one engine (`vector_overlap` false) an epilogue adds to its product, as fitted to boards; else it
hides behind the product and the longer of the two counts.  Fixed times per operator and per run are
the timing engine's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.graph import DType
from tilewright.program.isa import (
    Add,
    AddConstant,
    Attend,
    AveragePool,
    Convolve,
    Deconvolve,
    Fill,
    Instruction,
    Load,
    Lookup8,
    Lookup16,
    MatrixProduct,
    MatrixTile,
    MaxPool,
    Multiply,
    NormalizeTile,
    ParametricRelu,
    Reduce,
    Rescale,
    Resize,
    Softmax,
    Store,
)
from tilewright.targets.description import Target


class Transfer(NamedTuple):
    """What a Load or Store moves.

    Args:
        bytes: bytes copied.
        runs: contiguous runs of DDR that they form.
        ddr_bytes: DDR bandwidth that they take: whole bursts and the price of each run, or all
            that lies between them where that is less.
    """

    bytes: int
    runs: int
    ddr_bytes: int


def cycles(instruction: Instruction, target: Target) -> int:
    """Clock cycles that `instruction` occupies its engine; a transfer is alone on DDR."""
    if isinstance(instruction, Load | Store):
        moved = transfer(instruction, target)
        flow = moved.ddr_bytes / target.ddr_bytes_per_cycle
        return max(1, math.ceil(flow + target.cycles(target.transfer_seconds)))
    seconds = compute_seconds(instruction, target) + target.instruction_seconds
    return max(1, math.ceil(_exact(target.cycles(seconds))))


def compute_seconds(instruction: Instruction, target: Target) -> float:
    """Seconds of a MTX or VEC instruction's work, without any fixed time."""
    if isinstance(instruction, MatrixTile):
        product = matrix_seconds(instruction, target)
        epilogue = epilogue_seconds(instruction, target)
    elif isinstance(instruction, MatrixProduct):
        product, epilogue = _run_time_product(instruction, target)
    elif isinstance(instruction, Attend):
        product, epilogue = _attention(instruction, target)
    else:
        return vector_seconds(instruction, target)
    return max(product, epilogue) if target.vector_overlap else product + epilogue


def macs(instruction: MatrixTile) -> int:
    """Multiply-accumulates of the tile, without rounding; padding counts as work."""
    taps = instruction.kernel[0] * instruction.kernel[1]
    return (
        _positions(instruction) * taps * instruction.in_channels * _outputs_per_group(instruction)
    )


def matrix_seconds(instruction: MatrixTile, target: Target) -> float:
    """Time of the array."""
    rates = target.matrix
    width = instruction.in_channels // instruction.groups
    wide = rates.wide_factor ** sum(
        t == DType.S16 for t in (instruction.input_type, instruction.weight_type)
    )
    if width == 1 and instruction.groups > 1:
        return macs(instruction) * wide / rates.depthwise
    taps = instruction.kernel[0] * instruction.kernel[1]
    rounded = (
        _positions(instruction) * taps * instruction.groups
        * _round_up(width, rates.input_step)
        * _round_up(_outputs_per_group(instruction), rates.output_step)
    )  # fmt: skip
    return rounded * wide / (rates.dense if _is_dense(instruction) else rates.convolution)


def _run_time_product(instruction: MatrixProduct, target: Target) -> tuple[float, float]:
    """Time of the array and of what leaves it."""
    *batch, rows, terms, columns = instruction.shape
    a, b, y = instruction.types
    positions = math.prod(batch) * rows
    seconds = dense_seconds(positions, terms, columns, (a, b), target)
    return seconds, positions * columns * _size(y) / target.vector.output


def _attention(instruction: Attend, target: Target) -> tuple[float, float]:
    """Time of the array for both products, and of exponentials, biases and what is written."""
    queries, keys, depth, values = instruction.shape
    q, k, v, _, _, y = instruction.types
    seconds = dense_seconds(queries, depth, keys, (q, k), target)
    seconds += dense_seconds(queries, keys, values, (v,), target)
    addends = (instruction.mask != 0) + (instruction.bias != 0)
    vector = queries * keys * (1 / target.vector.softmax + addends / target.vector.elementwise)
    return seconds, vector + queries * values * _size(y) / target.vector.output


def dense_seconds(
    rows: int, terms: int, columns: int, types: Sequence[int], target: Target
) -> float:
    """Time of the array for a matrix product of two operands of these types."""
    rates = target.matrix
    wide = rates.wide_factor ** sum(t == DType.S16 for t in types)
    rounded = rows * _round_up(terms, rates.input_step) * _round_up(columns, rates.output_step)
    return rounded * wide / rates.dense


def epilogue_seconds(instruction: MatrixTile, target: Target) -> float:
    """Time of what leaves the array: bytes written, and the table where there is one."""
    outputs = instruction.out_rows * instruction.out_columns * instruction.out_channels
    seconds = outputs * DType(instruction.output_type).bytes / target.vector.output
    if instruction.table:
        seconds += outputs / target.vector.table
    return seconds


def vector_seconds(instruction: Instruction, target: Target) -> float:
    """Time of a VEC instruction's elements or bytes at the rate of its class."""
    rates = target.vector
    match instruction:
        case Lookup8() | Lookup16():
            return math.prod(instruction.shape) / rates.table
        case Softmax() | NormalizeTile():
            return math.prod(instruction.shape) / rates.softmax
        case Rescale():
            return math.prod(instruction.shape) * _size(instruction.types[1]) / rates.copy
        case Fill():
            return math.prod(instruction.shape) * _size(instruction.type) / rates.copy
        case MaxPool() | AveragePool():
            outputs = instruction.out_rows * instruction.out_columns * instruction.channels
            return outputs * math.prod(instruction.kernel) / rates.pool
        case Reduce():
            return math.prod(instruction.shape) / rates.pool
        case Resize():
            outputs = instruction.out_rows * instruction.out_columns * instruction.channels
            return outputs * instruction.taps / rates.elementwise
        case Add() | Multiply():
            return 2 * math.prod(instruction.shape) / rates.elementwise
        case AddConstant() | ParametricRelu():
            return math.prod(instruction.shape) / rates.elementwise
    raise AssertionError(f"{type(instruction).__name__} has no cost")


def transfer_bytes(instruction: Instruction) -> int:
    """Bytes that a Load or Store copies; 0 for other instructions."""
    return math.prod(instruction.shape) if isinstance(instruction, Load | Store) else 0


def transfer(instruction: Load | Store, target: Target) -> Transfer:
    """The bytes, contiguous DDR runs and DDR bandwidth of a Load or Store."""
    run, outer = _ddr_runs(instruction)
    occupied = ddr_bandwidth(run, outer, target, offset=instruction.ddr)
    return Transfer(math.prod(instruction.shape), math.prod(n for n, _ in outer), occupied)


def ddr_bandwidth(
    run: int, outer: Sequence[tuple[int, int]], target: Target, offset: int = 0
) -> int:
    """DDR bandwidth, in bytes, that contiguous runs repeated along strided axes occupy.

    Args:
        run: bytes of a run.
        outer: (extent, stride) of the axes that repeat it, outermost first.
        offset: address of the first run.
    """
    burst = target.ddr_burst_bytes
    if all(stride % burst == 0 for _, stride in outer):
        occupied = _round_up(offset % burst + run, burst)
    else:
        # A run of an odd stride begins anywhere in a burst: on average half a burst is lost.
        occupied = _round_up(run, burst) + burst // 2
    span = run
    for n, stride in reversed(outer):
        span += (n - 1) * stride
        apart = n * (occupied + target.ddr_row_bytes) - target.ddr_row_bytes
        occupied = min(apart, _round_up(span, burst))
    return occupied


def _ddr_runs(instruction: Load | Store) -> tuple[int, list[tuple[int, int]]]:
    """Length of a contiguous DDR run, and (extent, stride) of the axes that repeat it."""
    run = instruction.shape[3]
    outer = list(zip(instruction.shape[:3], instruction.ddr_strides, strict=True))
    while outer and (outer[-1][0] == 1 or outer[-1][1] == run):
        run *= outer.pop()[0]
    return run, [(n, stride) for n, stride in outer if n > 1]


def _is_dense(instruction: MatrixTile) -> bool:
    """A matrix product is a 1x1 convolution of one column."""
    return (
        instruction.kernel == (1, 1)
        and instruction.groups == 1
        and instruction.in_columns == instruction.out_columns == 1
    )


def _positions(instruction: MatrixTile) -> int:
    """Places where every tap is applied: outputs, or inputs of a transposed convolution."""
    if isinstance(instruction, Deconvolve):
        return instruction.in_rows * instruction.in_columns
    assert isinstance(instruction, Convolve)
    return instruction.out_rows * instruction.out_columns


def _outputs_per_group(instruction: MatrixTile) -> int:
    return instruction.out_channels // instruction.groups


def _size(dtype: int) -> int:
    return DType(dtype).bytes


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _exact(value: float) -> float:
    """`value` without the rounding error of a product that stands for a whole number."""
    nearest = round(value)
    return float(nearest) if abs(value - nearest) < 1e-6 else value
