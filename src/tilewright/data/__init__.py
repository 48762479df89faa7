"""Samples and preprocessing: one description of an input serves every stage."""

from __future__ import annotations

from tilewright.data.preprocess import InputDescription, explain, pixels_to_table, preprocess
from tilewright.data.samples import Sample, SampleSet, open_samples

__all__ = [
    "InputDescription",
    "Sample",
    "SampleSet",
    "explain",
    "open_samples",
    "pixels_to_table",
    "preprocess",
]
