"""report.json comes back as it went; report.html says everything and needs nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tilewright.report import (
    CpuNode,
    Layer,
    Mode,
    Report,
    Stage,
    read_report,
    render,
    write_report,
)
from tilewright.report.content import BuildWarning
from tilewright.report.page import count, figure, size

VOID = {"meta", "br", "link", "img", "input", "hr"}


def mode(cycles: int) -> Mode:
    layers = (
        Layer("conv0", "Conv", ("Conv_0", "Relu_1"), 3 * cycles // 4, "MTX", 4096, 123456),
        Layer("pool<1>", "GlobalAveragePool", ("Pool",), cycles // 4, "VEC", 64, 0),
    )
    return Mode(
        max_cycle=cycles,
        lower_bound_cycle=cycles // 2,
        latency_ms=cycles / 8e5,
        lower_bound_ms=cycles / 16e5,
        fps=8e8 / cycles,
        tops=3.6,
        sram_bytes=1 << 20,
        ddr_bytes=5 << 20,
        layers=layers,
    )


def report() -> Report:
    return Report(
        tool="tilewright 0.1.0",
        model="net.onnx",
        target="ax650n",
        compiled="compiled.onnx",
        inputs=(
            {
                "name": "image",
                "shape": [1, 3, 224, 224],
                "dtype": "float32",
                "preprocessing": "image: RGB\n  R: (x - 127) / 128",
            },
        ),
        outputs=({"name": "logits", "shape": [1, 1000], "dtype": "float32"},),
        nodes_npu=64,
        nodes_cpu=(CpuNode("nms", "NonMaxSuppression", "no integer form"),),
        modes={"NPU1": mode(800_000), "NPU3": mode(400_000)},
        sqnr_db={"logits": 22.31},
        float_difference={"logits": 1.5e-6},
        passes={"fold constants": 3, "identity": 0},
        calibration={"data": "photos", "samples": 32, "observer": "minmax"},
        warnings=(BuildWarning("calibration", "only 4 samples & one <odd> one", "few-samples"),),
        stages=(Stage("import", "00ff", 0.5, False), Stage("quantize", "0a0b", 2.25, True)),
        seconds={"import": 0.5, "quantize": 0.0},
        peak_mib=512.5,
        artifacts={"compiled.onnx": "ab" * 32},
        source={"sha256": "cd" * 32, "external": []},
        notes=({"code": "raised-weight-scales", "text": "conv: raised <by> 2"},),
        near_misses=({"rule": "softmax", "node": "Div_9", "reason": "two <axes>"},),
    )


def test_report_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(report(), path)
    assert read_report(path) == report()


def test_stable_fields_are_there(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(report(), path)
    data = json.loads(path.read_text())
    for name in (
        "compiled", "target", "seconds", "peak_mib", "nodes_npu", "nodes_cpu", "modes", "sqnr_db",
        "warnings",
    ):  # fmt: skip
        assert name in data
    assert {"name", "op", "reason"} == set(data["nodes_cpu"][0])
    for name in ("max_cycle", "lower_bound_cycle", "latency_ms", "sram_bytes", "ddr_bytes"):
        assert name in data["modes"]["NPU1"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_what_is_no_report_reads_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) is None
    path.write_text(content)
    assert read_report(path) is None


class Checker(HTMLParser):
    """Every element that is opened is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_is_well_formed_and_complete() -> None:
    page = render(report())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    text = " ".join(" ".join(checker.text).split())
    for words in (
        "net.onnx", "NPU1 and NPU3", "1.000 ms", "0.5000 ms", "22.3 dB", "no integer form",
        "only 4 samples & one <odd> one", "pool<1>", "taken from the build before",
        "(x - 127) / 128", "fold constants", "1.50e-06", "Div_9", "two <axes>",
        "conv: raised <by> 2",
    ):  # fmt: skip
        assert words in text


def test_page_needs_nothing_from_elsewhere() -> None:
    page = render(report())
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", page)
    assert "<script src" not in page


def test_page_of_a_target_without_programs() -> None:
    page = render(dataclasses.replace(report(), modes={}, nodes_cpu=(), sqnr_db={}))
    assert "the whole model runs on the NPU" in page


def test_numbers_read_well() -> None:
    assert count(1234567) == "1\u202f234\u202f567"
    assert [size(v) for v in (12, 2048, 5 << 20)] == ["12 B", "2.00 KiB", "5.00 MiB"]
    assert [figure(v) for v in (0, 3.14159, 1234.5, 0.0123, None, float("inf"))] == [
        "0", "3.14", "1234", "0.0123", "–", "–",
    ]  # fmt: skip
