"""From a quantized ONNX model to integer graphs: match, bind, partition."""

from __future__ import annotations

from tilewright.lowering.host import DOMAIN, ISLAND_OP
from tilewright.lowering.island import Island
from tilewright.lowering.lower import Lowered, PixelInput, lower
from tilewright.lowering.partition import CpuNode

__all__ = ["DOMAIN", "ISLAND_OP", "CpuNode", "Island", "Lowered", "PixelInput", "lower"]
