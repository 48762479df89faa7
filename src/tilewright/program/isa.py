"""The instruction set: one table, written as records.

Every instruction is a frozen dataclass whose fields say how they are stored and what they mean.
Encoder, decoder, disassembler, C header and `docs/isa.md` are derived from this file; the machine
gives the fields their meaning.  It is one file however long it grows: whoever asks what the NPU can
do reads one table.

Addresses are byte addresses: `sram` ones are local to the group, `ddr` ones global.  Strides are in
bytes, outermost axis first; an axis of stride 0 repeats.  Types are `graph.DType` numbers.  R24 and
all other formulas are those of `docs/arithmetic.md`.

Each queue (group, engine) executes in order and owns one semaphore, number
`group * len(Engine) + engine`, that counts the signals it has sent and never goes down.  An
instruction starts when every semaphore in `waits` has reached its value, and its signal counts when
its results are visible.  Nothing else orders two queues.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tilewright.records import Record, s16, s32, u8, u16, u32, u64


class Engine(enum.IntEnum):
    """The queues of a group."""

    LOAD = 0
    STORE = 1
    MTX = 2
    VEC = 3


class Wait(NamedTuple):
    """Start only when `semaphore` has counted to `value`."""

    semaphore: int
    value: int


def semaphore_of(group: int, engine: Engine) -> int:
    return group * len(Engine) + engine


@dataclass(frozen=True)
class Instruction(Record):
    """Base of all instructions."""

    OPCODE: ClassVar[int]
    ENGINE: ClassVar[Engine]


@dataclass(frozen=True)
class Load(Instruction):
    """Copy a 4-D box of bytes from DDR to SRAM; the innermost axis is contiguous on both sides."""

    OPCODE = 0x01
    ENGINE = Engine.LOAD
    ddr: int = u32("ddr address of the first byte")
    sram: int = u32("sram address of the first byte")
    shape: tuple[int, ...] = u32("extent of each axis; the innermost in bytes", count=4)
    ddr_strides: tuple[int, ...] = u32("ddr strides of the three outer axes", count=3)
    sram_strides: tuple[int, ...] = u32("sram strides of the three outer axes", count=3)


@dataclass(frozen=True)
class Store(Instruction):
    """Copy a 4-D box of bytes from SRAM to DDR; fields as in Load."""

    OPCODE = 0x02
    ENGINE = Engine.STORE
    ddr: int = u32("ddr address of the first byte")
    sram: int = u32("sram address of the first byte")
    shape: tuple[int, ...] = u32("extent of each axis; the innermost in bytes", count=4)
    ddr_strides: tuple[int, ...] = u32("ddr strides of the three outer axes", count=3)
    sram_strides: tuple[int, ...] = u32("sram strides of the three outer axes", count=3)


@dataclass(frozen=True)
class MatrixTile(Instruction):
    """Fields that the products of one image tile share.

    Epilogue: bias, R24 per channel, then either zero point and clamp, or (table != 0) saturation to
    s16, 513-entry table, R24, zero point, clamp.
    """

    input: int = u32("sram address of input row 0, column 0")
    output: int = u32("sram address of output row 0, column 0")
    weights: int = u32("sram address of weights [out_channels, kh, kw, in_channels/groups]")
    channels: int = u32("sram address of out_channels ChannelRecords")
    table: int = u32("sram address of a 513-entry s16 table; 0 for none")
    in_rows: int = u32("rows present in sram")
    in_columns: int = u32("columns present in sram")
    in_channels: int = u32("input channels of the tile")
    in_strides: tuple[int, ...] = u32("strides of input rows and columns", count=2)
    out_rows: int = u32("output rows of the tile")
    out_columns: int = u32("output columns of the tile")
    out_channels: int = u32("output channels of the tile")
    out_strides: tuple[int, ...] = u32("strides of output rows and columns", count=2)
    groups: int = u32("channel groups within the tile")
    kernel: tuple[int, ...] = u16("kernel rows and columns", count=2)
    stride: tuple[int, ...] = u16("row and column stride", count=2)
    dilation: tuple[int, ...] = u16("row and column dilation", count=2)
    pad: tuple[int, ...] = s32("input row and column of output (0, 0), negated", count=2)
    input_type: int = u8("type of the input")
    weight_type: int = u8("type of the weights")
    output_type: int = u8("type of the output")
    pre_shift: int = u8("pre-shift of R24")
    input_zero: int = s16("zero point of the input")
    weight_zero: int = s16("zero point of the weights")
    output_zero: int = s16("zero point of the output")
    table_shift: int = u8("shift of the table's R24")
    table_multiplier: int = s32("multiplier of the table's R24")


@dataclass(frozen=True)
class Convolve(MatrixTile):
    """Convolution; `groups` = in_channels makes it depthwise.

    Input rows and columns outside [0, in_rows) x [0, in_columns) count as the zero point.  A matrix
    product is a 1x1 convolution of one column.
    """

    OPCODE = 0x10
    ENGINE = Engine.MTX


@dataclass(frozen=True)
class Deconvolve(MatrixTile):
    """Transposed convolution.

    Output (r, c) sums input (i, j) through tap (u, v) where
    `r + pad[0] == i*stride[0] + u*dilation[0]` and likewise for columns; input rows and columns
    outside those present count as nothing.
    """

    OPCODE = 0x11
    ENGINE = Engine.MTX


@dataclass(frozen=True)
class MatrixProduct(Instruction):
    """`y[.., m, n] = clamp(R24(sum over k of (a[.., m, k]-za)*(b[.., k, n]-zb)) + zy)`.

    Both operands are read with strides, so that neither is copied to be transposed.
    """

    OPCODE = 0x12
    ENGINE = Engine.MTX
    a: int = u32("sram address of a")
    b: int = u32("sram address of b")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("two batch extents, then m, k, n", count=5)
    a_strides: tuple[int, ...] = u32("strides of a along the batch axes, m, k", count=4)
    b_strides: tuple[int, ...] = u32("strides of b along the batch axes, k, n", count=4)
    y_strides: tuple[int, ...] = u32("strides of y along the batch axes, m, n", count=4)
    types: tuple[int, ...] = u8("types of a, b, y", count=3)
    zeros: tuple[int, ...] = s16("zero points of a, b, y", count=3)
    pre_shift: int = u8("pre-shift of R24")
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Attend(Instruction):
    """`y = Softmax(scores) @ v` with normalisation last (section 11).

    `score = sat_s16(R24(sum (q-zq)*(k-zk)) + bias + R24(mask-zm))`, a row for each query.  `block`
    rows are held in `scratch` at a time: query r in row `r % block`.
    """

    OPCODE = 0x13
    ENGINE = Engine.MTX
    q: int = u32("sram address of the queries [m, d]")
    k: int = u32("sram address of the keys [n, d]")
    v: int = u32("sram address of the values [n, e]")
    mask: int = u32("sram address of the mask [m, n]; 0 for none")
    bias: int = u32("sram address of the bias [m, n], in steps of the scores; 0 for none")
    scratch: int = u32("sram address of [block, n] s16 scores")
    y: int = u32("sram address of y [m, e]")
    shape: tuple[int, ...] = u32("queries m, keys n, depth d, depth e of the values", count=4)
    block: int = u32("rows of scores held at a time")
    q_strides: tuple[int, ...] = u32("strides of q", count=2)
    k_strides: tuple[int, ...] = u32("strides of k", count=2)
    v_strides: tuple[int, ...] = u32("strides of v", count=2)
    mask_strides: tuple[int, ...] = u32("strides of the mask", count=2)
    bias_strides: tuple[int, ...] = u32("strides of the bias", count=2)
    y_strides: tuple[int, ...] = u32("strides of y", count=2)
    types: tuple[int, ...] = u8("types of q, k, v, mask, bias (s16 or s32), y", count=6)
    zeros: tuple[int, ...] = s16("zero points of q, k, v, mask, y", count=5)
    pre_shift: int = u8("pre-shift of the scores' R24")
    score_multiplier: int = s32("multiplier of the scores' R24")
    score_shift: int = u8("shift of the scores' R24")
    mask_multiplier: int = s32("multiplier of the mask's R24")
    mask_shift: int = u8("shift of the mask's R24")
    exponent_multiplier: int = s32("multiplier of the exponent's R24")
    exponent_shift: int = u8("shift of the exponent's R24")
    multiplier: int = s32("multiplier of the output's R24")
    shift: int = u8("shift of the output's R24")


@dataclass(frozen=True)
class Add(Instruction):
    """`y = clamp(((ma*(a-za) + mb*(b-zb) + 2**(shift-1)) >> shift) + zy)`; mb < 0 subtracts."""

    OPCODE = 0x20
    ENGINE = Engine.VEC
    a: int = u32("sram address of a")
    b: int = u32("sram address of b")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    a_strides: tuple[int, ...] = u32("strides of a", count=4)
    b_strides: tuple[int, ...] = u32("strides of b", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    types: tuple[int, ...] = u8("types of a, b, y", count=3)
    zeros: tuple[int, ...] = s16("zero points of a, b, y", count=3)
    ma: int = s32("multiplier of a")
    mb: int = s32("multiplier of b")
    shift: int = u8("common shift")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class AddConstant(Instruction):
    """`y = clamp(((ma*(a-za) + c + 2**(shift-1)) >> shift) + zy)`, c being s64 words in sram."""

    OPCODE = 0x21
    ENGINE = Engine.VEC
    a: int = u32("sram address of a")
    c: int = u32("sram address of c")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    a_strides: tuple[int, ...] = u32("strides of a", count=4)
    c_strides: tuple[int, ...] = u32("strides of c", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    types: tuple[int, ...] = u8("types of a, y", count=2)
    zeros: tuple[int, ...] = s16("zero points of a, y", count=2)
    ma: int = s32("multiplier of a")
    shift: int = u8("common shift")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Multiply(Instruction):
    """`y = clamp(R24((a-za)*(b-zb)) + zy)`."""

    OPCODE = 0x22
    ENGINE = Engine.VEC
    a: int = u32("sram address of a")
    b: int = u32("sram address of b")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    a_strides: tuple[int, ...] = u32("strides of a", count=4)
    b_strides: tuple[int, ...] = u32("strides of b", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    types: tuple[int, ...] = u8("types of a, b, y", count=3)
    zeros: tuple[int, ...] = s16("zero points of a, b, y", count=3)
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Lookup8(Instruction):
    """`y = table[x]`: 256 entries of the output type, indexed by code minus the type's lowest."""

    OPCODE = 0x23
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    table: int = u32("sram address of the table")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    x_strides: tuple[int, ...] = u32("strides of x", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    types: tuple[int, ...] = u8("types of x, y", count=2)


@dataclass(frozen=True)
class Lookup16(Instruction):
    """s16 input through a 513-entry s16 table, linear between entries, R24, zero point, clamp."""

    OPCODE = 0x24
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    table: int = u32("sram address of the table")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    x_strides: tuple[int, ...] = u32("strides of x", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    output_type: int = u8("type of y")
    output_zero: int = s16("zero point of y")
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class ParametricRelu(Instruction):
    """`d = x-zx; y = clamp((d >= 0 ? R24(d) : R24(d; the channel's record)) + zy)`.

    Channels are the innermost axis.
    """

    OPCODE = 0x25
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    channels: int = u32("sram address of shape[3] ChannelRecords; their multiplier is signed")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    x_strides: tuple[int, ...] = u32("strides of x", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    types: tuple[int, ...] = u8("types of x, y", count=2)
    zeros: tuple[int, ...] = s16("zero points of x, y", count=2)
    multiplier: int = s32("multiplier of R24 for d >= 0")
    shift: int = u8("shift of R24 for d >= 0")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Rescale(Instruction):
    """`y = clamp(R24(x-zx) + zy)` over six strided axes: every movement, permutation and clamp."""

    OPCODE = 0x26
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extent of each axis", count=6)
    x_strides: tuple[int, ...] = u32("strides of x", count=6)
    y_strides: tuple[int, ...] = u32("strides of y", count=6)
    types: tuple[int, ...] = u8("types of x, y", count=2)
    zeros: tuple[int, ...] = s16("zero points of x, y", count=2)
    multiplier: int = s32("multiplier of R24, negative to negate")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Fill(Instruction):
    """Write one code to a strided box."""

    OPCODE = 0x27
    ENGINE = Engine.VEC
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extent of each axis", count=4)
    y_strides: tuple[int, ...] = u32("strides of y", count=4)
    type: int = u8("type of y")
    value: int = s32("the code")


@dataclass(frozen=True)
class MaxPool(Instruction):
    """Maximum over a window of codes, padding never wins; then `clamp(R24(q-zx) + zy)`."""

    OPCODE = 0x28
    ENGINE = Engine.VEC
    input: int = u32("sram address of input row 0, column 0")
    output: int = u32("sram address of output row 0, column 0")
    in_rows: int = u32("rows present in sram")
    in_columns: int = u32("columns present in sram")
    channels: int = u32("channels of the tile")
    in_strides: tuple[int, ...] = u32("strides of input rows and columns", count=2)
    out_rows: int = u32("output rows of the tile")
    out_columns: int = u32("output columns of the tile")
    out_strides: tuple[int, ...] = u32("strides of output rows and columns", count=2)
    kernel: tuple[int, ...] = u16("window rows and columns", count=2)
    stride: tuple[int, ...] = u16("row and column stride", count=2)
    dilation: tuple[int, ...] = u16("row and column dilation", count=2)
    pad: tuple[int, ...] = s32("input row and column of output (0, 0), negated", count=2)
    types: tuple[int, ...] = u8("types of input, output", count=2)
    zeros: tuple[int, ...] = s16("zero points of input, output", count=2)
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class AveragePool(Instruction):
    """`y = clamp(R24(sum over the window of (q-zx); count) + zy)`.

    The count of a window is (its rows that count) * (its columns that count): those inside
    `counted`, in tile coordinates, whether present or not.  Its multiplier and shift are those of
    the first CountRecord with that count.  Only what is present is summed.
    """

    OPCODE = 0x29
    ENGINE = Engine.VEC
    input: int = u32("sram address of input row 0, column 0")
    output: int = u32("sram address of output row 0, column 0")
    counts: int = u32("sram address of count_entries CountRecords")
    count_entries: int = u32("number of CountRecords")
    in_rows: int = u32("rows present in sram")
    in_columns: int = u32("columns present in sram")
    channels: int = u32("channels of the tile")
    in_strides: tuple[int, ...] = u32("strides of input rows and columns", count=2)
    out_rows: int = u32("output rows of the tile")
    out_columns: int = u32("output columns of the tile")
    out_strides: tuple[int, ...] = u32("strides of output rows and columns", count=2)
    kernel: tuple[int, ...] = u16("window rows and columns", count=2)
    stride: tuple[int, ...] = u16("row and column stride", count=2)
    dilation: tuple[int, ...] = u16("row and column dilation", count=2)
    pad: tuple[int, ...] = s32("input row and column of output (0, 0), negated", count=2)
    counted: tuple[int, ...] = s32("first and end row, first and end column that count", count=4)
    types: tuple[int, ...] = u8("types of input, output", count=2)
    zeros: tuple[int, ...] = s16("zero points of input, output", count=2)
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Reduce(Instruction):
    """`y[o, i] = clamp(R24(sum over r0, r1 of (x[o, r0, r1, i] - zx)) + zy)`."""

    OPCODE = 0x2A
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extents o, r0, r1, i", count=4)
    x_strides: tuple[int, ...] = u32("strides of x", count=4)
    y_strides: tuple[int, ...] = u32("strides of y along o and i", count=2)
    types: tuple[int, ...] = u8("types of x, y", count=2)
    zeros: tuple[int, ...] = s16("zero points of x, y", count=2)
    pre_shift: int = u8("pre-shift of R24")
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Softmax(Instruction):
    """Softmax over the last axis of [o0, o1, n]."""

    OPCODE = 0x2B
    ENGINE = Engine.VEC
    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    shape: tuple[int, ...] = u32("extents o0, o1, n", count=3)
    x_strides: tuple[int, ...] = u32("strides of x", count=3)
    y_strides: tuple[int, ...] = u32("strides of y", count=3)
    types: tuple[int, ...] = u8("types of x, y", count=2)
    output_zero: int = s16("zero point of y")
    exponent_multiplier: int = s32("multiplier of the exponent's R24")
    exponent_shift: int = u8("shift of the exponent's R24")
    multiplier: int = s32("multiplier of the output's R24")
    shift: int = u8("shift of the output's R24")


@dataclass(frozen=True)
class Resize(Instruction):
    """`y[r, c] = clamp(R24(sum of cy*cx*(x[iy, ix] - zx)) + zy)` with `taps` taps an axis.

    `rows` and `columns` point to TapRecords, `taps` for each output row or column; a tap's index is
    that of the whole image, `origin` is subtracted from it.
    """

    OPCODE = 0x2C
    ENGINE = Engine.VEC
    input: int = u32("sram address of the first row and column present")
    output: int = u32("sram address of output row 0, column 0")
    rows: int = u32("sram address of out_rows * taps TapRecords")
    columns: int = u32("sram address of out_columns * taps TapRecords")
    taps: int = u8("taps of each axis: 1 nearest, 2 linear, 4 cubic")
    origin: tuple[int, ...] = u32("image row and column of the first ones present", count=2)
    in_rows: int = u32("rows present in sram")
    in_columns: int = u32("columns present in sram")
    channels: int = u32("channels of the tile")
    in_strides: tuple[int, ...] = u32("strides of input rows and columns", count=2)
    out_rows: int = u32("output rows of the tile")
    out_columns: int = u32("output columns of the tile")
    out_strides: tuple[int, ...] = u32("strides of output rows and columns", count=2)
    types: tuple[int, ...] = u8("types of input, output", count=2)
    zeros: tuple[int, ...] = s16("zero points of input, output", count=2)
    multiplier: int = s32("multiplier of R24")
    shift: int = u8("shift of R24")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class NormalizeTile(Instruction):
    """Fields that the normalisations share: groups of [r0, r1, n] elements, one at each (o0, o1).

    `y = clamp(((n*gain + offset + 2**(shift-1)) >> shift) + zy)`, n being the group's element over
    the root of W (section 12 of the arithmetic) and gain and offset those of its AffineRecord.
    """

    x: int = u32("sram address of x")
    y: int = u32("sram address of y")
    gains: int = u32("sram address of the first AffineRecord")
    shape: tuple[int, ...] = u32("extents o0, o1, r0, r1, n", count=5)
    x_strides: tuple[int, ...] = u32("strides of x", count=5)
    y_strides: tuple[int, ...] = u32("strides of y", count=5)
    gain_strides: tuple[int, ...] = u32("strides of the AffineRecords", count=5)
    types: tuple[int, ...] = u8("types of x, y", count=2)
    zeros: tuple[int, ...] = s16("zero points of x, y", count=2)
    epsilon: int = u64("added to W")
    shift: int = u8("shift of the affine end")
    clamp: tuple[int, ...] = s16("lo and hi", count=2)


@dataclass(frozen=True)
class Normalize(NormalizeTile):
    """`W = C * sum of x**2 - (sum of x)**2 + epsilon`, `n = (C*x - sum of x) / sqrt(W)` in Q16."""

    OPCODE = 0x30
    ENGINE = Engine.VEC


@dataclass(frozen=True)
class NormalizeRms(NormalizeTile):
    """`W = C * sum of (x-zx)**2 + epsilon`, `n = C * (x-zx) / sqrt(W)` in Q16."""

    OPCODE = 0x31
    ENGINE = Engine.VEC


@dataclass(frozen=True)
class NormalizeL2(NormalizeTile):
    """`W = sum of (x-zx)**2 + epsilon`, `n = (x-zx) / sqrt(W)` in Q24."""

    OPCODE = 0x32
    ENGINE = Engine.VEC


INSTRUCTIONS: tuple[type[Instruction], ...] = (
    Load, Store, Convolve, Deconvolve, MatrixProduct, Attend, Add, AddConstant, Multiply,
    Lookup8, Lookup16, ParametricRelu, Rescale, Fill, MaxPool, AveragePool, Reduce, Softmax, Resize,
    Normalize, NormalizeRms, NormalizeL2,
)  # fmt: skip


# Records of constants that instructions read; the graph file stores them in this form.


@dataclass(frozen=True)
class ChannelRecord(Record):
    """Parameters of one output channel; the bias has 48 bits."""

    bias_low: int = u32("bits 0..31 of the bias")
    bias_high: int = s16("bits 32..47 of the bias")
    shift: int = u8("shift of R24")
    reserved: int = u8("zero")
    multiplier: int = s32("multiplier of R24")
    lo: int = s16("lower clamp")
    hi: int = s16("upper clamp")


@dataclass(frozen=True)
class CountRecord(Record):
    """R24 of an average over `count` elements."""

    count: int = s32("number of elements")
    multiplier: int = s32("multiplier of R24")
    shift: int = s32("shift of R24")


@dataclass(frozen=True)
class TapRecord(Record):
    """One tap of a resized axis."""

    index: int = s32("row or column of the whole image")
    coefficient: int = s32("Q11")


@dataclass(frozen=True)
class AffineRecord(Record):
    """Gain and offset of a normalised element; the offset has 53 bits."""

    gain: int = s32("gain")
    offset_low: int = u32("bits 0..31 of the offset")
    offset_high: int = s32("bits 32..63 of the offset")
