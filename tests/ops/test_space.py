"""DepthToSpace and SpaceToDepth against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from node_harness import EXACT, compare, lowered, model_of

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import space
from tilewright.ops.copying import UNIT
from tilewright.ops.space import DepthToSpace, SpaceToDepth

S8 = Encoding(DType.S8, 0.5, 3)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(("block", "depth"), [(2, 3), (3, 1), (2, 1), (1, 4)])
@pytest.mark.parametrize("encoding", [S8, EXACT])
def test_depth_to_space(mode, block, depth, encoding):
    shape = (2, depth * block**2, 3, 4)
    model = model_of("DepthToSpace", {"x": shape}, blocksize=block, mode=mode)
    for seed in range(3):
        compare(space, model, {"x": encoding, "y0": encoding}, np.random.default_rng(seed))


@pytest.mark.parametrize(("block", "depth"), [(2, 3), (3, 1), (1, 4)])
def test_space_to_depth(block, depth):
    shape = (2, depth, 3 * block, 2 * block)
    model = model_of("SpaceToDepth", {"x": shape}, blocksize=block)
    for seed in range(3):
        compare(space, model, {"x": S8, "y0": S8}, np.random.default_rng(seed))


def test_one_undoes_the_other():
    x = np.arange(2 * 4 * 6 * 3, dtype=np.int16).reshape(2, 4, 6, 3)
    t = TensorType(DType.S16, x.shape, 1.0, 0)
    deep_type = TensorType(DType.S16, (2, 2, 3, 12), 1.0, 0)
    (deep,) = SpaceToDepth(*UNIT, 2).reference([x], [t], [deep_type])
    (back,) = DepthToSpace(*UNIT, 2, 0).reference([deep], [deep_type], [t])
    np.testing.assert_array_equal(back, x)


def test_another_scale_in_the_file():
    y = Encoding(DType.U8, 1.0, 100)
    model = model_of("DepthToSpace", {"x": (1, 8, 2, 2)}, blocksize=2)
    compare(space, model, {"x": S8, "y0": y}, np.random.default_rng(9), steps=0.5 + 1e-3)


def test_a_single_instruction_does_it():
    model = model_of("DepthToSpace", {"x": (1, 8, 2, 2)}, blocksize=2)
    graph = lowered(space, model, {"x": S8, "y0": S8})
    assert len(graph.nodes) == 1


def test_channels_that_are_not_blocks_are_an_error():
    with pytest.raises(QuantizationError, match="not blocks"):
        DepthToSpace(*UNIT, 2, 0).infer([TensorType(DType.S8, (1, 2, 2, 6), 1.0, 0)], "here")
    with pytest.raises(QuantizationError, match="not blocks"):
        SpaceToDepth(*UNIT, 2).infer([TensorType(DType.S8, (1, 3, 2, 6), 1.0, 0)], "here")
