"""Writing and reading graph files: round trip, arena, and refusal of everything that is damaged."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import numerics
from tilewright.errors import ArtifactError
from tilewright.graph import Border, DType, Graph, Node, TensorType, text
from tilewright.graphfile import arena, read, write
from tilewright.graphfile.format import FileHeader, Section, SectionRecord
from tilewright.graphfile.reader import sections_of
from tilewright.graphfile.writer import seal
from tilewright.ops.clamp import Rescale
from tilewright.ops.conv import Conv
from tilewright.ops.product import channel_records
from tilewright.ops.reshape import Reshape

U8 = TensorType(DType.U8, (1, 4, 4, 3), 0.5, 7)


def like(shape):
    return TensorType(DType.U8, shape, 0.5, 7)


def chain(pixel_table=None, pixel_channels=()):
    """Picture -> convolution -> reshape -> two rescales, one of them an output."""
    m = numerics.multiplier(0.01)
    full = np.full(8, m.m), np.full(8, m.shift), np.zeros(8), np.full(8, 255)
    conv = Conv(
        groups=1, stride=(1, 1), dilation=(1, 1), pads=(0, 0, 0, 0), weight_type=DType.S8,
        weight_zero=0, pre_shift=0, table_multiplier=0, table_shift=0,
        weight=np.arange(8 * 3, dtype=np.int8).reshape(8, 1, 1, 3),
        channels=channel_records(np.arange(8), *full), table=None,
    )  # fmt: skip
    copy = Rescale(*numerics.multiplier(1.0), 0, 255)
    nodes = (
        Node("conv", conv, ("x",), ("a",), ("onnx/Conv", "onnx/Relu")),
        Node("flat", Reshape((1, 128)), ("a",), ("b",), ()),
        Node("left", copy, ("b",), ("c",), ()),
        Node("right", copy, ("c",), ("y",), ()),
    )
    tensors = {"x": U8, "a": like((1, 4, 4, 8))} | {n: like((1, 128)) for n in "bcy"}
    picture = Border("image", "x", (1, 3, 4, 4), (0, 2, 3, 1), pixel_table, pixel_channels)
    outputs = (Border("y", "y", (1, 128), (0, 1)), Border("c", "c", (1, 128), (0, 1)))
    return Graph("chain", tensors, nodes, (picture,), outputs)


def same(a, b):
    assert text(a) == text(b)
    assert [n.source for n in a.nodes] == [n.source for n in b.nodes]
    for m, n in zip(a.nodes, b.nodes, strict=True):
        for left, right in zip(
            m.op.constant_arrays().values(), n.op.constant_arrays().values(), strict=True
        ):
            np.testing.assert_array_equal(left, right)
    for left, right in zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=True):
        assert (left.name, left.tensor, left.shape, left.permutation) == (
            right.name, right.tensor, right.shape, right.permutation,
        )  # fmt: skip


def test_round_trip():
    graph = chain()
    data = write(graph)
    again = read(data)
    same(graph, again)
    assert again.inputs[0].pixel_table is None
    assert write(again) == data


def test_pixel_table():
    table = np.arange(256 * 3, dtype=np.uint8).reshape(256, 3)
    again = read(write(chain(table, (2, 1, 0))))
    np.testing.assert_array_equal(again.inputs[0].pixel_table, table)
    assert again.inputs[0].pixel_channels == (2, 1, 0)


def test_sections_and_constants_are_aligned():
    data = write(chain())
    at = FileHeader.packed_size()
    for section in Section:
        record = SectionRecord.unpack(data[at : at + SectionRecord.packed_size()])
        assert (record.section, record.offset % 64) == (section, 0)
        at += SectionRecord.packed_size()


def test_arena_shares_only_what_is_not_alive_together():
    graph = chain()
    plan = arena.plan(graph)
    assert plan.offsets["a"] == plan.offsets["b"]
    alive = {"x": (-1, 9), "a": (0, 2), "c": (2, 9), "y": (3, 9)}
    for m, (m0, m1) in alive.items():
        for n, (n0, n1) in alive.items():
            if m < n and m0 <= n1 and n0 <= m1:
                a, b = sorted((plan.offsets[k], graph.tensors[k].bytes) for k in (m, n))
                assert a[0] + a[1] <= b[0]
    assert plan.bytes <= sum(-(-t.bytes // 64) * 64 for t in graph.tensors.values())


def test_names_of_the_fault():
    data = write(chain())
    with pytest.raises(ArtifactError, match="does not begin"):
        read(b"ONNX" + data[4:])
    with pytest.raises(ArtifactError, match="header says"):
        read(data[:-64])
    with pytest.raises(ArtifactError, match="checksum"):
        read(data[:-1] + b"\x01")
    with pytest.raises(ArtifactError, match="version 9"):
        read(data[:8] + struct.pack("<I", 9) + data[12:])
    with pytest.raises(ArtifactError, match="operators differ"):
        read(data[:28] + struct.pack("<I", 9) + data[32:])
    with pytest.raises(ArtifactError, match="operator 99"):
        read(patched(data, Section.NODES, 8, struct.pack("<I", 99)))
    with pytest.raises(ArtifactError, match="zero point"):
        read(patched(data, Section.TENSORS, 28, struct.pack("<i", 300)))


def patched(data, section, at, value):
    """The file with bytes of one section replaced and a checksum that fits."""
    rest = bytearray(data)
    part = sections_of(memoryview(data))[section]
    offset = data.index(bytes(part)) + at
    rest[offset : offset + len(value)] = value
    return seal(bytes(rest[FileHeader.packed_size() :]), len(Section))


SMALL = write(chain())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damage_is_an_artifact_error_or_a_graph(data):
    """Bytes are changed behind the header, and the checksum made to fit again."""
    head = FileHeader.packed_size()
    rest = bytearray(SMALL[head:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(rest) - 1))
        rest[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255, rest[at] ^ 1]))
    try:
        read(seal(bytes(rest), len(Section)))
    except ArtifactError as error:
        assert str(error)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, len(SMALL) - 1))
def test_truncation_is_an_artifact_error(length):
    with pytest.raises(ArtifactError):
        read(SMALL[:length])


def test_what_does_not_fit_is_refused():
    deep = TensorType(DType.U8, (1,) * 9, 1.0, 0)
    graph = Graph("deep", {"x": deep}, (), (Border("x", "x", (1,) * 9, tuple(range(9))),), ())
    with pytest.raises(ArtifactError, match="9 axes"):
        write(graph)
