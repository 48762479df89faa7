"""What a model's outputs are worth: scores with intervals, signal-to-noise, detections."""

from __future__ import annotations
