"""report.html: one self-contained page, rendered from the report."""

from __future__ import annotations

import math
from typing import Any

from tilewright.report.content import Report

SLOWEST_ROWS = 400


def render(report: Report) -> str:
    """The page: no scripts, fonts or pictures from elsewhere."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("tilewright.report", "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "size": size,
        "seconds": seconds,
        "milliseconds": milliseconds,
        "figure": figure,
    }
    template = environment.get_template("report.html")
    worst = min((v for v in report.sqnr_db.values() if v is not None), default=None)
    return template.render(
        r=report, modes=_modes(report), reasons=_reasons(report), worst_sqnr=worst
    )


def _modes(report: Report) -> list[dict[str, Any]]:
    """Each mode with its layers' shares of the busiest layer and of the whole."""
    views = []
    for name, mode in report.modes.items():
        total = sum(layer.cycles for layer in mode.layers) or 1
        largest = max((layer.cycles for layer in mode.layers), default=0) or 1
        rows = [
            {
                "order": index + 1,
                "layer": layer,
                "share": layer.cycles / total,
                "bar": layer.cycles / largest,
            }
            for index, layer in enumerate(mode.layers)
        ]
        bound = mode.lower_bound_cycle / mode.max_cycle if mode.max_cycle else 0.0
        views.append({"name": name, "mode": mode, "rows": rows, "bound_share": bound})
    return views


def _reasons(report: Report) -> list[tuple[str, int]]:
    """CPU reasons with the number of nodes, most frequent first."""
    counts: dict[str, int] = {}
    for node in report.nodes_cpu:
        counts[node.reason] = counts.get(node.reason, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def count(value: float) -> str:
    """An integer with thin spaces between groups of three digits."""
    return f"{round(value):,}".replace(",", "\u202f")


def size(value: float) -> str:
    """Bytes in the largest binary unit that keeps it above one."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{figure(value)} {unit}"
        value /= 1024
    return f"{figure(value)} GiB"


def seconds(value: float) -> str:
    """Seconds with two decimals, more when it is quick."""
    return f"{value:.2f} s" if value >= 0.1 else f"{1000 * value:.0f} ms"


def milliseconds(value: float) -> str:
    """Milliseconds to four significant digits."""
    return f"{figure(value, 4)} ms"


def figure(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, without an exponent where it can be read."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e7:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"
