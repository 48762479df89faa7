"""Descriptions of NPUs: one TOML file a chip."""

from __future__ import annotations

from tilewright.targets.description import MatrixRates, NumericRules, Target, VectorRates
from tilewright.targets.load import load_target, target_names

__all__ = ["MatrixRates", "NumericRules", "Target", "VectorRates", "load_target", "target_names"]
