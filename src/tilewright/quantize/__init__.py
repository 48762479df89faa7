"""Quantization: canonical float ONNX and samples to QDQ ONNX, and QDQ ONNX back to a float graph.

quantized = quantize_model(model, samples, resolve_scheme(target.rules, config.quantization,
                                                          config.calibration))
graph = strip(quantized.model)          # what lowering reads; other tools' QDQ files too
partition = find_sites(graph)
"""

from __future__ import annotations

from tilewright.quantize.pipeline import Quantized, quantize_model
from tilewright.quantize.report import QuantizationReport
from tilewright.quantize.scheme import Scheme, resolve_scheme
from tilewright.quantize.sites import CpuNode, Partition, find_sites
from tilewright.quantize.strip import is_qdq, strip

__all__ = [
    "CpuNode",
    "Partition",
    "QuantizationReport",
    "Quantized",
    "Scheme",
    "find_sites",
    "is_qdq",
    "quantize_model",
    "resolve_scheme",
    "strip",
]
