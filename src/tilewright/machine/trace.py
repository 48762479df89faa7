"""Traces for Perfetto and Chrome's tracing page: a row per engine, a process per group."""

from __future__ import annotations

import json
from typing import Any

from tilewright.machine.timing import Timeline
from tilewright.program.isa import Engine
from tilewright.program.program import Program
from tilewright.targets import Target
from tilewright.targets.cost import transfer_bytes


def trace_events(program: Program, timeline: Timeline, target: Target) -> list[dict[str, Any]]:
    """Trace events in the JSON form, times in microseconds; one for each command, by node."""
    events = [e for g in range(program.groups) for e in _rows(g)]
    for index, (command, span) in enumerate(zip(program.commands, timeline.spans, strict=True)):
        kind = type(command.instruction)
        details: dict[str, Any] = {"command": index, "instruction": kind.__name__}
        if moved := transfer_bytes(command.instruction):
            details["bytes"] = moved
        events.append(
            {
                "name": program.nodes[command.node],
                "cat": kind.ENGINE.name,
                "ph": "X",
                "ts": _microseconds(target, span.start),
                "dur": _microseconds(target, span.end - span.start),
                "pid": command.group,
                "tid": int(kind.ENGINE),
                "args": details,
            }
        )
    return events


def trace_json(program: Program, timeline: Timeline, target: Target) -> str:
    """The trace file; the same program gives the same text."""
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "target": program.target,
            "mode": program.mode,
            "max_cycle": timeline.max_cycle,
        },
        "traceEvents": trace_events(program, timeline, target),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _rows(group: int) -> list[dict[str, Any]]:
    rows = [_meta("process_name", group, 0, {"name": f"group {group}"})]
    for engine in Engine:
        rows.append(_meta("thread_name", group, engine, {"name": engine.name}))
        rows.append(_meta("thread_sort_index", group, engine, {"sort_index": int(engine)}))
    return rows


def _meta(name: str, group: int, engine: int, details: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": group, "tid": int(engine), "args": details}


def _microseconds(target: Target, cycles: float) -> float:
    return round(target.seconds(cycles) * 1e6, 3)
