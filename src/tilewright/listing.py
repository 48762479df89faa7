"""Tables of what there is: targets, and operators with their limits."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.targets import load_target, target_names

Row = dict[str, Any]


def target_rows() -> list[Row]:
    """One row per chip, for lists."""
    rows = []
    for name in target_names():
        target = load_target(name)
        rows.append(
            {
                "name": name,
                "title": target.title,
                "modes": " ".join(target.modes) or "runs the integer graph",
                "activations": target.numeric.default_activation,
                "weights": target.numeric.weight_types[0]
                + (" per channel" if target.numeric.per_channel else " per tensor"),
            }
        )
    return rows


def target_details(name: str) -> Row:
    """Every number of a chip with its unit and where it comes from."""
    target = load_target(name)
    numbers = []
    for key, origin in target.origins.items():
        value: Any = target
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        numbers.append({"key": key, "value": value, **origin._asdict()})
    return {
        "name": target.name,
        "title": target.title,
        "vendor": target.vendor,
        "modes": target.modes,
        "numeric": dataclasses.asdict(target.numeric),
        "numbers": numbers,
    }


def operator_rows(target: str | None = None) -> list[Row]:
    """ONNX operators that run on the NPU; a target is only checked: all have the same operators."""
    from tilewright.ops.catalog import support_table

    if target is not None:
        load_target(target)
    return [
        {
            "onnx": row.onnx,
            "operators": ", ".join(row.operators),
            "types": row.types,
            "limits": row.limits,
        }
        for row in support_table()
    ]


def operators_page() -> str:
    """SUPPORTED_OPS.md."""
    lines = [
        "# Supported operators",
        "",
        "Printed by `tilewright ops --markdown`. An ONNX node that meets the limits runs on the",
        "NPU of every target; any other becomes a CPU node of the compiled model, and `build`",
        "prints the reason. Nodes that carry no arithmetic (Identity, Dropout, Constant and the",
        "like) vanish while importing.",
        "",
        "| ONNX operator | integer operators | types | limits |",
        "| --- | --- | --- | --- |",
    ]
    for row in operator_rows():
        cells = (row[k].replace("|", "\\|") for k in ("onnx", "operators", "types", "limits"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
