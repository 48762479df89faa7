"""Quantization: canonical float ONNX and samples to QDQ ONNX, and QDQ ONNX back to a float graph.

scheme = resolve_scheme(target.rules, config.quantization, config.calibration)
calibration = calibrate_model(model, samples, scheme)       # serves other targets too
quantized = quantize_model(model, samples, scheme, calibration=calibration)
graph = strip(quantized.model)          # what lowering reads; other tools' QDQ files too
partition = find_sites(graph)
"""

from __future__ import annotations

from tilewright.quantize.calibrate import Calibration, calibration_warnings
from tilewright.quantize.calibration_file import load_calibration, save_calibration
from tilewright.quantize.pipeline import Quantized, calibrate_model, quantize_model
from tilewright.quantize.report import QuantizationReport
from tilewright.quantize.scheme import Scheme, resolve_scheme
from tilewright.quantize.sites import CpuNode, Partition, find_sites
from tilewright.quantize.strip import is_qdq, strip

__all__ = [
    "Calibration",
    "CpuNode",
    "Partition",
    "QuantizationReport",
    "Quantized",
    "Scheme",
    "calibrate_model",
    "calibration_warnings",
    "find_sites",
    "is_qdq",
    "load_calibration",
    "quantize_model",
    "resolve_scheme",
    "save_calibration",
    "strip",
]
