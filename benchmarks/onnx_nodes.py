"""The node tests that ship inside the onnx package, through the three executions.

    python benchmarks/onnx_nodes.py                  all of them; writes results/onnx_nodes.json
    python benchmarks/onnx_nodes.py --only Resize    those whose name holds a word

Every test of tensors is imported, calibrated on its own inputs, quantized for ax650n, and run by
the reference, the C runtime and the machine. Inputs that the NPU wants constant (weights, axes)
are made so. It counts as

    passed  whole on the NPU, all three give the same bits; every output lies within one and a half
            of its quantization steps from what onnxruntime computes from the quantized model, where
            that is one operator; and it has 20 dB against what the test expects, or against what
            the float model gives on inputs rounded to 8 bits (a function with jumps, a softmax over
            thousands)
    cpu     at least one node stays on the CPU, with the reason
    failed  anything else

Exit code 1 if a test fails.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import results
from onnx import numpy_helper

from tilewright import borders, graphfile
from tilewright.compiler import compile_graph
from tilewright.config import CalibrationConfig, QuantizationConfig
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.graph import Graph
from tilewright.importer import import_model
from tilewright.islands import IslandMachine
from tilewright.lowering import lower
from tilewright.ops.pattern import FloatGraph
from tilewright.quantize import quantize_model, resolve_scheme
from tilewright.quantize.sites import MOVEMENT, find_sites
from tilewright.reference import execute_codes
from tilewright.runtime import Runtime
from tilewright.targets import load_target

Array = npt.NDArray[Any]
Values = dict[str, Array]

TARGET, MODE = "ax650n", "NPU1"

STEPS = 1.5
"""Of the output: half a step of rounding, and one where a value near the middle falls the other way
or a table interpolates."""

LEAST_SQNR = 20.0
"""In dB: 8 bits give 30 to 50 on one operator."""


@dataclass(frozen=True)
class Case:
    """A node test.

    Args:
        feeds: inputs by name.
        expected: float outputs by name.
    """

    name: str
    model: onnx.ModelProto
    feeds: Values
    expected: Values

    @property
    def operator(self) -> str:
        """Its one operator; tests of function bodies have several."""
        kinds = {node.op_type for node in self.model.graph.node}
        return kinds.pop() if len(kinds) == 1 else "(function body)"


@dataclass(frozen=True)
class Outcome:
    """What became of a test: `state` is passed, cpu or failed."""

    name: str
    operator: str
    state: str
    reason: str = ""


class Mismatch(Exception):
    """The sentence that says what is wrong."""


def cases() -> Iterator[Case]:
    """Tests of the default domain whose inputs and outputs are tensors, some of them float."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        if case.model is None or not case.data_sets:
            continue
        graph = case.model.graph
        if any(node.domain not in ("", "ai.onnx") for node in graph.node):
            continue
        inputs, outputs = case.data_sets[0]
        if not all(isinstance(a, np.ndarray) for a in (*inputs, *outputs)):
            continue
        names = [v.name for v in graph.input]
        feeds = {n: np.asarray(a) for n, a in zip(names, inputs, strict=False)}
        expected = {v.name: np.asarray(a) for v, a in zip(graph.output, outputs, strict=False)}
        floats = [a.dtype == np.float32 for a in (*feeds.values(), *expected.values())]
        if any(floats[: len(feeds)]) and any(floats[len(feeds) :]):
            yield Case(case.name, case.model, feeds, expected)


def frozen(case: Case, names: Sequence[str]) -> onnx.ModelProto:
    """The test's model with some inputs made constant."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = [v for v in model.graph.input if v.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(
        numpy_helper.from_array(case.feeds[n], n) for n in names if n in case.feeds
    )
    return model


def variants(case: Case) -> Iterator[onnx.ModelProto]:
    """All inputs at run time; then without those that are not float; then the first alone."""
    floats = [n for n, a in case.feeds.items() if a.dtype == np.float32]
    for kept in (list(case.feeds), floats, floats[:1]):
        yield frozen(case, [n for n in case.feeds if n not in kept])


def evaluate(case: Case) -> Outcome:
    """Run one test."""
    reasons: list[str] = []
    for model in variants(case):
        try:
            imported = import_model(ir.from_proto(model))
            partition = find_sites(FloatGraph(imported.model.graph))
            if partition.cpu:
                reasons.append(f"{partition.cpu[0].node.op_type}: {partition.cpu[0].reason}")
                continue
            if not partition.sites:
                reasons.append("nothing is left to compute")
                continue
            _check(case, imported.model)
            return Outcome(case.name, case.operator, "passed")
        except UnsupportedError as error:
            reasons.append(str(error))
        except (Mismatch, TilewrightError) as error:
            if isinstance(error, TilewrightError) and not isinstance(error, Mismatch):
                code = getattr(error, "code", "")
                if code.startswith("TW-1"):  # the importer refuses the form of the model
                    reasons.append(str(error))
                    continue
            return Outcome(case.name, case.operator, "failed", str(error))
        except Exception as error:  # noqa: BLE001 - a traceback is a failed test
            return Outcome(case.name, case.operator, "failed", f"{type(error).__name__}: {error}")
    return Outcome(case.name, case.operator, "cpu", reasons[-1])


def _check(case: Case, model: ir.Model) -> None:
    """Quantize, run three times, compare.

    Raises:
        Mismatch: the first thing that is wrong.
    """
    names = [v.name or "" for v in model.graph.inputs]
    feeds = {n: case.feeds[n] for n in names}
    turned = _turned(model)
    calibration = CalibrationConfig(observer="minmax")
    # 8-bit outputs, so that a step is one of the type that the operator works in.
    choices = QuantizationConfig(outputs="same")
    scheme = resolve_scheme(load_target(TARGET).numeric, choices, calibration)
    quantized = quantize_model(turned, [feeds], scheme).model
    lowered = lower(quantized)
    if lowered.cpu_nodes:
        raise UnsupportedError(f"{lowered.cpu_nodes[0].reason}")
    if len(lowered.islands) != 1:
        raise Mismatch(f"it falls into {len(lowered.islands)} parts")
    graph = lowered.islands[0].graph
    found = _three_times(graph, feeds)
    rounded = _float(turned, _rounded_inputs(graph, feeds))
    sites = find_sites(FloatGraph(model.graph)).sites
    exact = _float(quantized, feeds) if len(sites) == 1 and turned is model else {}
    for name, value in found.items():
        if name in exact:
            _within_steps(graph, name, value, exact[name])
        wanted = case.expected.get(name)
        expected = None if wanted is None else wanted if turned is model else -wanted
        _near(name, value, expected, rounded[name])


def _turned(model: ir.Model) -> ir.Model:
    """The model, its outputs negated if it only moves values: alone, it would stay on the CPU."""
    sites = find_sites(FloatGraph(model.graph)).sites
    if any(s.rule not in MOVEMENT for s in sites):
        return model
    copy = model.clone()
    for i, output in enumerate(list(copy.graph.outputs)):
        name = output.name or ""
        output.name = f"{name}_moved"
        node = ir.node("Neg", [output], name=f"{name}_turned")
        made = node.outputs[0]
        made.name, made.type, made.shape = name, output.type, output.shape
        copy.graph.append(node)
        copy.graph.outputs[i] = made
    return copy


def _rounded_inputs(graph: Graph, feeds: Values) -> Values:
    """The inputs as the NPU reads them."""
    codes = borders.quantize_inputs(graph, feeds)
    rounded = dict(feeds)
    for border in graph.inputs:
        tensor = graph.tensors[border.tensor]
        rounded[border.name] = borders.dequantize_output(border, tensor, codes[border.tensor])
    return rounded


def _three_times(graph: Graph, feeds: Values) -> Values:
    codes = execute_codes(graph, borders.quantize_inputs(graph, feeds))
    wanted = borders.dequantize_outputs(graph, codes)
    runtime = Runtime(graphfile.write(graph), 1)
    target = load_target(TARGET)
    machine = IslandMachine(compile_graph(graph, target, MODE), target, graph)
    executors: dict[str, Callable[[Values], Mapping[str, Array]]] = {
        "the C runtime": runtime.run,
        "the machine": machine.outputs,
    }
    for who, run in executors.items():
        for name, value in run(feeds).items():
            if value.tobytes() != wanted[name].tobytes():
                raise Mismatch(f"{who} gives other bits of {name} than the reference")
    runtime.close()
    return wanted


def _float(model: ir.Model, feeds: Values) -> Values:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _within_steps(graph: Graph, name: str, found: Array, exact: Array) -> None:
    border = next(b for b in graph.outputs if b.name == name)
    scale = graph.tensors[border.tensor].scale
    error = float(np.abs(found.astype(np.float64) - exact).max(initial=0.0)) / scale
    if not error <= STEPS:
        raise Mismatch(f"{name} is {error:.1f} steps away from the quantized model's value")


def _near(name: str, found: Array, expected: Array | None, rounded: Array) -> None:
    ratios = [_decibels(found, wanted) for wanted in (expected, rounded) if wanted is not None]
    if max(ratios) < LEAST_SQNR:
        raise Mismatch(f"{name} has {ratios[0]:.1f} dB against the test's value")


def _decibels(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape:
        raise Mismatch(f"an output has shape {found.shape}, the test's {wanted.shape}")
    finite = np.isfinite(wanted)
    exact = wanted[finite].astype(np.float64)
    noise, power = float(((found[finite] - exact) ** 2).sum()), float((exact**2).sum())
    if noise == 0:
        return np.inf
    return 10 * float(np.log10(power / noise)) if power > 0 else -np.inf


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many passed, stayed on the CPU, failed."""
    counted = collections.Counter(o.state for o in outcomes)
    return {state: counted[state] for state in ("passed", "cpu", "failed")}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORD", help="tests whose name holds it")
    parser.add_argument("--no-write", action="store_true", help="leave the results alone")
    args = parser.parse_args()
    word = args.only.lower()
    chosen = [c for c in cases() if word in c.name.lower() or word == c.operator.lower()]
    outcomes = [evaluate(case) for case in chosen]
    for outcome in outcomes:
        if outcome.state != "passed" and (word or outcome.state == "failed"):
            print(f"{outcome.state:7} {outcome.name}: {outcome.reason}")
    print(", ".join(f"{count} {state}" for state, count in summary(outcomes).items()))
    if not word and not args.no_write:
        rows = [dataclasses.asdict(o) for o in outcomes]
        results.write("onnx_nodes", rows, settings={"target": TARGET, "mode": MODE})
    return int(any(o.state == "failed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
