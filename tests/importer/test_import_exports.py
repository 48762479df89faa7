"""What two exporters of PyTorch and two simplifiers wrote (make_exports.py) is one graph."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from importer_nets import imported, ops

ARCHIVE = Path(__file__).parent / "exports.zip"

PROJECTED = "MatMul Add Split Reshape Reshape Reshape Transpose Transpose Transpose"
ATTENTION = f"{PROJECTED} MatMul Softmax MatMul Transpose Reshape MatMul Add"

EXPECTED = {
    "layer_norm": "LayerNormalization",
    "layer_norm_2d": "Transpose LayerNormalization Transpose",
    "variance_with_correction": "LayerNormalization",
    "rms_norm": "RMSNormalization",
    "group_norm": "GroupNormalization",
    "normalize": "LpNormalization",
    "gelu": "Gelu",
    "gelu_tanh": "Gelu",
    "quick_gelu": "MatMul Add Sigmoid Mul Mul",
    "mish": "Mish",
    "softplus": "Softplus",
    "hard_swish": "HardSwish",
    "log_softmax": "LogSoftmax",
    "batch_norm_of_tokens": "MatMul Add",
    "attention": ATTENTION,
    "fused_attention": ATTENTION,
    "einsum_attention": ATTENTION,
    "multihead_attention": f"Transpose {ATTENTION} Transpose",
    "unfold": "Reshape Transpose Reshape",
    "roll": "Slice Slice Concat Slice Slice Concat",
}


def exports() -> list[str]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return [name.removesuffix(".onnx") for name in archive.namelist()]


def load(name: str) -> ir.Model:
    with zipfile.ZipFile(ARCHIVE) as archive:
        proto = onnx.load_from_string(archive.read(f"{name}.onnx"))
    return ir.serde.deserialize_model(proto)


@pytest.mark.parametrize("name", [name for name in exports() if not name.startswith("swin")])
def test_a_module(name):
    result = imported(load(name))
    expected = Counter(EXPECTED[name.split(".")[0]].split())
    assert Counter(ops(result.model)) == expected
    assert result.near_misses == ()


def test_a_swin():
    """Within five percent: exporters write a mean over tokens in different ways."""
    sizes = {}
    for name in exports():
        if name.startswith("swin"):
            result = imported(load(name), tolerance=2e-5)
            counts = Counter(ops(result.model))
            sizes[name] = sum(counts.values())
            fixed = {op: counts[op] for op in ("LayerNormalization", "Gelu", "Softmax", "MatMul")}
            assert fixed == {"LayerNormalization": 6, "Gelu": 2, "Softmax": 2, "MatMul": 13}
            assert not {"Erf", "Pow", "Sqrt", "Div", "Sub"} & set(counts)
            assert result.near_misses == ()
    assert len(sizes) == 6 and max(sizes.values()) <= 1.05 * min(sizes.values()), sizes
