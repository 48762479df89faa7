"""Write docs/benchmarks.md from benchmarks/results.

python benchmarks/render.py            write the page
python benchmarks/render.py --check    exit code 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import results

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

Content = dict[str, Any]
Rows = list[Content]

HEAD = """# Benchmarks

Every table names the command that makes it; `tilewright fetch benchmarks` brings the networks and
pictures, and `python benchmarks/NAME.py --help` tells the rest. Other tools run in the same process
or take turns with ours, so read ratios, not milliseconds. Results as data:
[benchmarks/results](../benchmarks/results). This page is written by `python benchmarks/render.py`.
"""

PROVISIONAL = "**Provisional:** other work ran on the machine; expect other figures on an idle one."


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [" | ".join(row) for row in (header, rule, *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def figure(value: float | None, digits: int = 2) -> str:
    """A number, or a dash for a ratio that is infinite or absent."""
    return "–" if value is None else f"{value:,.{digits}f}"


def chance(p: float | None) -> str:
    """A p value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def accuracy(content: Content) -> str:
    parts = []
    titles = {
        "pictures": "70 photographs, ten views each, that anyone can fetch",
        "tiny": "500 small pictures that anyone can fetch",
        "sample": "800 labelled pictures given by `--data`",
    }
    for network in _unique(content["rows"], "network"):
        for name in (n for n in titles if n in _unique(content["rows"], "set")):
            rows = [r for r in content["rows"] if (r["network"], r["set"]) == (network, name)]
            if rows:
                parts += [f"### {network} on `{name}`: {titles[name]}", _accuracy_table(rows)]
    flips = content["settings"].get("flips") or {}
    if any(r["set"] == "sample" for r in content["rows"]):
        rows = [(key, str(count)) for key, count in flips.items()]
        parts += ["### Flips on `sample` and `pictures` together (1,500)"]
        parts.append(table(("setting", "flips"), rows))
    return "\n\n".join(parts)


def _accuracy_table(rows: Rows) -> str:
    header = (
        "setting, execution",
        "top-1 %",
        "agreement %",
        "flips",
        "SQNR dB",
        "p (float)",
        "p (peer)",
    )
    return table(
        header,
        (
            (
                f"{r['setting']}, {r['execution']}",
                figure(r["top1"]),
                figure(r["agreement"]),
                str(r["flips"]),
                figure(r["sqnr_db"]),
                chance(r["p_float"]),
                chance(r["p_peer"]),
            )
            for r in rows
        ),
    )


def bits(content: Content) -> str:
    header = (
        "network",
        "target",
        "NPU",
        "CPU",
        "cycles",
        "build s",
        "peak MiB",
        "SQNR dB",
        "executors that agree",
    )
    rows = []
    for r in content["rows"]:
        ratios = [v for v in r["sqnr_db"].values() if v is not None]
        verdict = r["failure"] or r["difference"] or str(len(r["executors"]))
        rows.append(
            (
                _with_origin(r),
                r["target"],
                str(r["nodes_npu"]),
                str(len(r["nodes_cpu"])),
                "<br>".join(f"{mode} {cycles:,}" for mode, cycles in r["cycles"].items()) or "–",
                figure(sum(r["seconds"].get(s, 0.0) for s in STAGES), 1),
                figure(r.get("peak_mib"), 0),
                figure(min(ratios) if ratios else None, 1),
                verdict,
            )
        )
    agreed = sum(not (r["failure"] or r["difference"]) for r in content["rows"])
    note = (
        f"{agreed} of {len(rows)} builds agree in every bit. NPU and CPU count operators of the"
        " source model; SQNR is that of the worst output over"
        f" {content['settings']['samples']} calibration samples; that of random weights"
        " fed with noise says nothing of a task. Structures of ultralytics (AGPL-3.0) are measured"
        " only and are no part of this repository."
    )
    return f"{note}\n\n{table(header, rows)}"


def transformer_tasks(content: Content) -> str:
    parts = []
    for network in _unique(content["rows"], "network"):
        rows = [r for r in content["rows"] if r["network"] == network]
        figures = list(dict.fromkeys(name for r in rows for name in r["figures"]))
        modes = list(dict.fromkeys(mode for r in rows for mode in r["cycles"]))
        header = ("setting, execution", *figures, *(f"{mode} cycles, MB moved" for mode in modes))
        asked = max(r["questions"] for r in rows)
        parts.append(f"### {network}: {asked} questions")
        parts.append(table(header, (_task_row(r, figures, modes) for r in rows)))
        failures = {r["setting"]: r["failure"] for r in rows if r["failure"]}
        parts += [f"`{setting}` gives no model: {reason}." for setting, reason in failures.items()]
        left = list(dict.fromkeys(node for r in rows for node in r["nodes_cpu"]))
        parts += [f"On the CPU: {'; '.join(left)}."] if left else []
    return "\n\n".join(parts)


def _task_row(row: Content, figures: Sequence[str], modes: Sequence[str]) -> list[str]:
    costs = [
        f"{row['cycles'][m]:,}, {row['bytes_moved'][m] / 1e6:.1f}" if m in row["cycles"] else "–"
        for m in modes
    ]
    return [
        f"{row['setting']}, {row['execution']}",
        *(
            figure(row["figures"].get(name), 2 if "dB" in name or "%" in name else 4)
            for name in figures
        ),
        *costs,
    ]


def _with_origin(row: Content) -> str:
    """The network's name, and what its weights are."""
    if row["trained"]:
        return str(row["network"])
    weights = "random weights"
    if row.get("origin", "").startswith("ultralytics"):
        weights += ", ultralytics: measured only"
    return f"{row['network']} ({weights})"


STAGES = ("import", "calibrate", "quantize", "compile", "measure")


def detectors(content: Content) -> str:
    found = [r for r in content["rows"] if "kept" in r]
    joined = [r for r in content["rows"] if "branch" in r]
    header = ("network, pictures", "setting", "kept %", "extra", "score difference", "SQNR dB")
    rows = (
        (
            f"{r['network']}, {r['pictures']} ({r['detections']} detections)",
            f"{r['setting']}, {r['execution']}",
            figure(r["kept"]),
            str(r["extra"]),
            f"{r['mean_difference']:.4f} (largest {r['largest_difference']:.3f})",
            ", ".join(f"{name} {value:.1f}" for name, value in r["sqnr_db"].items()),
        )
        for r in found
    )
    parts = [table(header, rows)]
    if joined:
        branches = (
            (
                r["network"],
                f"`{r['branch']}`",
                figure(r["joined_db"]),
                figure(r["alone_db"]),
                figure(r["alone_db"] - r["joined_db"]),
            )
            for r in joined
        )
        parts.append("### Branches of a joined output (random weights)")
        parts.append(table(("network", "branch", "joined dB", "alone dB", "loss dB"), branches))
    return "\n\n".join(parts)


def build_time(content: Content) -> str:
    rows = (
        (r["command"], figure(r["seconds"]), figure(r["ratio"]), figure(r["peak_mib"], 0))
        for r in content["rows"]
    )
    return table(("command", "median s", "of onnxruntime", "peak MiB"), rows)


def runtime_speed(content: Content) -> str:
    rows = (
        (
            f"{r['network']}, {r['engine']}",
            str(r["threads"]),
            figure(r["milliseconds"]),
            figure(r["ratio"]),
        )
        for r in content["rows"]
    )
    return table(("engine", "threads", "median ms", "of float32"), rows)


def cli_time(content: Content) -> str:
    rows = ((r["what"], figure(r["seconds"]), ", ".join(r["ran"]) or "–") for r in content["rows"])
    return table(("command", "s", "stages that ran"), rows)


SECTIONS: tuple[tuple[str, str, str, Callable[[Content], str]], ...] = (
    ("accuracy", "Accuracy", "[--data DIR]", accuracy),
    ("transformer_tasks", "Transformers at their tasks", "", transformer_tasks),
    ("detectors", "Detectors", "[--faces DIR] [--structures DIR]", detectors),
    ("bits", "Three executions, the same bits", "[--structures DIR]", bits),
    ("build_time", "Time of a build", "", build_time),
    ("runtime_speed", "Latency of the C runtime", "", runtime_speed),
    ("cli_time", "Waiting for the command line", "", cli_time),
)


def page() -> str:
    parts = [HEAD.strip()]
    for name, title, options, body in SECTIONS:
        content = results.read(name)
        if content is None:
            continue
        command = f"python benchmarks/{name}.py {options}".strip()
        parts += [f"## {title}", f"`{command}` on {_where(content)}."]
        parts += [PROVISIONAL] if content["provisional"] else []
        parts.append(body(content))
    return "\n\n".join(parts) + "\n"


def _where(content: Content) -> str:
    host = content["host"]
    packages = host["packages"]
    return (
        f"{host['cores']} cores of {host['processor']}, {host['system']}, Python {host['python']},"
        f" onnxruntime {packages['onnxruntime']}, numpy {packages['numpy']}"
    )


def _unique(rows: Rows, key: str) -> list[str]:
    return list(dict.fromkeys(r[key] for r in rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    text = page()
    if args.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
