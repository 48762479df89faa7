"""The standard's own node tests: none fails, and what passed before still passes."""

from __future__ import annotations

import results
from onnx_nodes import cases, evaluate, summary


def test_every_node_test_that_passed_before_passes() -> None:
    before = results.read("onnx_nodes")
    assert before is not None
    passed = {row["name"] for row in before["rows"] if row["state"] == "passed"}

    outcomes = {case.name: evaluate(case) for case in cases()}

    failed = [f"{o.name}: {o.reason}" for o in outcomes.values() if o.state == "failed"]
    lost = [
        f"{name}: {outcomes[name].reason}"
        for name in sorted(passed & outcomes.keys())
        if outcomes[name].state != "passed"
    ]
    assert not failed
    assert not lost
    assert summary(list(outcomes.values()))["passed"] >= len(passed & outcomes.keys()) > 300
