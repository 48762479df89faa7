"""`Runtime`: borders, repeated runs, memory, and errors that say what is wrong."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from random_operators import GENERATORS, Draw
from runtime_harness import graph_of, instruction_set

from tilewright import numerics
from tilewright.errors import ArtifactError, DataError, EnvironmentFault, UnsupportedError
from tilewright.graph import Border, DType, Graph, Node, TensorType
from tilewright.graphfile import write
from tilewright.ops.clamp import Rescale
from tilewright.ops.movement import Reshape
from tilewright.runtime import Runtime, library


def rescales(count, shape=(1, 4, 6, 3), pixel_table=None, pixel_channels=()):
    """A chain of rescales from an ONNX picture [1, 3, 4, 6]."""
    names = ["x", *(f"t{i}" for i in range(count))]
    tensors = {n: TensorType(DType.U8, shape, 0.5, 3) for n in names}
    half = Rescale(*numerics.multiplier(0.5), 0, 255)
    nodes = [Node(f"n{i}", half, (names[i],), (names[i + 1],), ()) for i in range(count)]
    tensors["y"] = TensorType(DType.U8, (1, 72), 0.5, 3)
    nodes.append(Node("flat", Reshape((1, 72)), (names[-1],), ("y",), ()))
    picture = Border("image", "x", (1, 3, 4, 6), (0, 2, 3, 1), pixel_table, pixel_channels)
    return Graph(
        "rescales", tensors, tuple(nodes), (picture,), (Border("y", "y", (1, 72), (0, 1)),)
    )


def test_float_in_onnx_order():
    runtime = Runtime(rescales(1), keep_tensors=True)
    image = np.arange(72, dtype=np.float32).reshape(1, 3, 4, 6)
    y = runtime.run({"image": image})["y"]
    codes = numerics.quantize(image, 0.5, 3, 0, 255)
    np.testing.assert_array_equal(runtime.tensor("x"), codes.transpose(0, 2, 3, 1))
    expected = numerics.r24(codes - 3, *numerics.multiplier(0.5)).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(y, expected.reshape(1, 72).astype(np.float32) * 0.5)


def test_picture_border():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (256, 3)).astype(np.uint8)
    runtime = Runtime(rescales(1, pixel_table=table, pixel_channels=(2, 1, 0)), keep_tensors=True)
    picture = rng.integers(0, 256, (1, 4, 6, 3)).astype(np.uint8)
    runtime.run({"image": picture})
    expected = np.stack([table[picture[..., 2 - c], c] for c in range(3)], axis=-1)
    np.testing.assert_array_equal(runtime.tensor("x"), expected)


def test_descriptions():
    runtime = Runtime(rescales(1))
    (image,) = runtime.input_descriptions
    assert (image.name, image.shape, image.stored_shape) == ("image", (1, 3, 4, 6), (1, 4, 6, 3))
    assert (image.dtype, image.scale, image.zero_point) == (DType.U8, 0.5, 3)
    assert runtime.output_descriptions[0].shape == (1, 72)


def test_inputs_stay_set_and_memory_is_reused():
    image = np.random.default_rng(0).normal(0, 30, (1, 3, 4, 6)).astype(np.float32)
    runtime, kept = Runtime(rescales(8)), Runtime(rescales(8), keep_tensors=True)
    first = runtime.run({"image": image})["y"]
    runtime.run_again()
    np.testing.assert_array_equal(runtime.outputs()["y"], first)
    np.testing.assert_array_equal(kept.run({"image": image})["y"], first)
    assert runtime.memory_bytes < kept.memory_bytes


def test_contexts_run_side_by_side():
    drawn = GENERATORS["Conv"](Draw(3))
    data = write(graph_of(drawn.op, drawn.inputs, drawn.output))
    values = np.random.default_rng(0).normal(0, 30, drawn.inputs[0].shape).astype(np.float32)
    expected = Runtime(data).run({"x0": values})["y"]
    results = []

    def work():
        runtime = Runtime(data, threads=2)
        results.extend(runtime.run({"x0": values})["y"] for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 60
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_node_times():
    runtime = Runtime(rescales(2), measure=True)
    runtime.run({"image": np.zeros((1, 3, 4, 6), np.float32)})
    times = runtime.node_nanoseconds()
    assert [operator for operator, _ in times.values()] == ["Rescale", "Rescale", "Reshape"]
    assert all(ns > 0 for _, ns in times.values())


def test_wrong_feeds():
    runtime = Runtime(rescales(1))
    image = np.zeros((1, 3, 4, 6), np.float32)
    with pytest.raises(DataError, match="no input imgae; did you mean 'image'"):
        runtime.run({"imgae": image})
    with pytest.raises(DataError, match="image is not given"):
        runtime.run({})
    with pytest.raises(DataError, match=r"\[1, 4, 6, 3\], the graph takes \[1, 3, 4, 6\]"):
        runtime.run({"image": image.transpose(0, 2, 3, 1)})
    with pytest.raises(DataError, match="keep_tensors"):
        runtime.tensor("x")


def test_damaged_files():
    data = write(rescales(1))
    with pytest.raises(ArtifactError, match="not a graph file"):
        Runtime(b"no graph file at all")
    with pytest.raises(ArtifactError, match="checksum"):
        Runtime(data[:-1] + b"\x07")


def test_what_c_cannot_run():
    words = TensorType(DType.S32, (4,), 1.0, 0)
    graph = graph_of(Rescale(*numerics.multiplier(0.5), 0, 1), [words], words)
    with pytest.raises(UnsupportedError, match=r"node \(Rescale\): its operands"):
        Runtime(graph)


def test_impossible_options():
    with pytest.raises(DataError, match="65 threads"):
        Runtime(rescales(1), threads=65)
    with instruction_set("avx9000"), pytest.raises(DataError, match="TILEWRIGHT_ISA"):
        Runtime(rescales(1))


def test_absent_library(monkeypatch, tmp_path):
    monkeypatch.setenv(library.VARIABLE, str(tmp_path / "libtilewright.so"))
    with pytest.raises(EnvironmentFault, match="does not exist"):
        library.find()
