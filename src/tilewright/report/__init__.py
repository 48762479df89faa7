"""What a build tells: report.json for machines, report.html for people."""

from __future__ import annotations

from tilewright.report.content import (
    BuildWarning,
    CpuNode,
    Layer,
    Mode,
    Report,
    Stage,
    read_report,
    write_report,
)
from tilewright.report.page import render

__all__ = [
    "BuildWarning",
    "CpuNode",
    "Layer",
    "Mode",
    "Report",
    "Stage",
    "read_report",
    "render",
    "write_report",
]
