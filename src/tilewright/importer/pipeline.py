"""From an ONNX model to its canonical form: the passes in order, verified after each."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from tilewright.errors import ModelError, TilewrightError
from tilewright.importer import loading
from tilewright.importer.cut import cut
from tilewright.importer.edit import SOURCE_KEY, NearMiss, PassResult
from tilewright.importer.graphs import is_quantized, subgraphs_of
from tilewright.importer.passes import (
    FINISH,
    FLOAT_ROUND,
    PREPARE,
    QUANTIZED_ROUND,
    constants,
    names,
)
from tilewright.importer.saving import without_large_constants
from tilewright.importer.shapes import fix_shapes
from tilewright.importer.verify import BROKEN, verify, verify_structure, why_invalid

Pass = Callable[[ir.Model], PassResult]

# Each round makes the graph smaller or simpler; real models settle in two or three.
_LARGEST_ROUNDS = 12


@dataclass(frozen=True)
class PassRecord:
    """What one pass did over the whole import.

    Attributes:
        name: the pass.
        changes: places changed, summed over its runs.
        seconds: wall time; for reports only, it never enters an artifact.
    """

    name: str
    changes: int
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class Imported:
    """A model in canonical form, beside what it came from.

    Attributes:
        model: the canonical model.
        original: the source for comparison: its path, or a copy of the model that was passed.
        passes: one record per pass, in order of first use.
        sha256: of the source file's bytes followed by its external data files.
        quantized: whether the source carries QuantizeLinear/DequantizeLinear.
        near_misses: what looks like a named operator in the canonical model and is none.
    """

    model: ir.Model
    original: Path | ir.Model
    passes: tuple[PassRecord, ...]
    sha256: str
    quantized: bool
    near_misses: tuple[NearMiss, ...] = ()


def import_model(
    source: str | os.PathLike[str] | ir.Model,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    start: Sequence[str] = (),
    end: Sequence[str] = (),
) -> Imported:
    """Bring a model to canonical form (see tilewright.importer); the source is left unchanged.

    Args:
        source: an ONNX file, or a model in memory.
        input_shapes: whole shapes of inputs with free dimensions.
        start, end: tensors of the source between which the model is taken; empty: all of it.  The
            original to compare with is then the part cut out.

    Raises: ModelError: the model is unusable, or leaves dimensions open that `input_shapes` does
        not set, or has no such tensor to cut at. ConfigError: `input_shapes` does not fit it.
    """
    try:
        return _import(source, input_shapes or {}, start, end)
    except Exception as error:
        if isinstance(error, TilewrightError) and error.code != BROKEN:
            raise
        # What surprises the passes is most often a model that is no valid ONNX.
        reason = why_invalid(source)
        if reason is None:
            raise
        name = "the model" if isinstance(source, ir.Model) else os.fspath(source)
        raise ModelError(
            f"{name} holds an invalid graph: {reason}",
            fix="check it with onnx.checker and export it again",
            code="TW-1103",
        ) from error


def _import(
    source: str | os.PathLike[str] | ir.Model,
    input_shapes: Mapping[str, Sequence[int]],
    start: Sequence[str],
    end: Sequence[str],
) -> Imported:
    original: Path | ir.Model
    if isinstance(source, ir.Model):
        original, model, sha256 = _copy(source), _copy(source), _sha256_of(source)
    else:
        original = Path(source)
        model, sha256 = loading.read(source)
    _prepare(model)
    fix_shapes(model, input_shapes)
    quantized = is_quantized(model)
    passes = _Passes(model)
    passes.run_all(PREPARE)
    if start or end:
        model = cut(model, start, end)
        original = model.clone()
        passes.model = model
    passes.run_until_settled(QUANTIZED_ROUND if quantized else FLOAT_ROUND)
    passes.run_all(FINISH)
    verify(model, names.NAME)
    model.ir_version = max(model.ir_version, 10)
    return Imported(model, original, passes.records(), sha256, quantized, passes.left())


def _prepare(model: ir.Model) -> None:
    """Inline local functions, put nodes in order, give each node a name and its provenance."""
    if model.functions:
        InlinePass()(model)
        model.functions.clear()
    if not _in_order(model.graph):
        model.graph.sort()
    constants.drop_initialized_inputs(model)
    names.run(model)
    for graph in model.graphs():
        for node in graph:
            node.metadata_props[SOURCE_KEY] = node.name or node.op_type
    used = {node.domain for graph in model.graphs() for node in graph} | {""}
    for domain in [domain for domain in model.opset_imports if domain not in used]:
        del model.opset_imports[domain]


def _copy(model: ir.Model) -> ir.Model:
    """A clone that shares tensors; a graph whose nodes are out of order goes through protobuf."""
    if _in_order(model.graph):
        return model.clone()
    return ir.serde.deserialize_model(ir.serde.serialize_model(model))


def _in_order(graph: ir.Graph) -> bool:
    made: set[ir.Value] = set()
    for node in graph:
        reads = [value for value in node.inputs if value is not None]
        if any(value.producer() is not None and value not in made for value in reads):
            return False
        if next(subgraphs_of(node), None) is not None:
            return False
        made.update(node.outputs)
    return True


class _Passes:
    """Runs passes over one model, verifies after each, and sums up what they did."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.changes: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.near_misses: dict[str, tuple[NearMiss, ...]] = {}

    def run_all(self, passes: Sequence[Pass]) -> int:
        total = 0
        for run in passes:
            start = time.perf_counter()
            result = run(self.model)
            # Only the walk of `specialise` makes opset and shapes canonical.
            if result.changes and result.name != constants.NAME:
                verify_structure(self.model, result.name)
            spent = time.perf_counter() - start
            self.changes[result.name] = self.changes.get(result.name, 0) + result.changes
            self.seconds[result.name] = self.seconds.get(result.name, 0.0) + spent
            self.near_misses[result.name] = result.near_misses
            total += result.changes
        return total

    def run_until_settled(self, passes: Sequence[Pass]) -> None:
        for _ in range(_LARGEST_ROUNDS):
            if not self.run_all(passes):
                return

    def records(self) -> tuple[PassRecord, ...]:
        return tuple(
            PassRecord(name, changes, self.seconds[name]) for name, changes in self.changes.items()
        )

    def left(self) -> tuple[NearMiss, ...]:
        """Of each pass, what its last run left."""
        return tuple(miss for misses in self.near_misses.values() for miss in misses)


def _sha256_of(model: ir.Model) -> str:
    """Hash of a model in memory: its structure and the bytes of every constant."""
    structure = without_large_constants(model).SerializeToString(deterministic=True)
    digest = hashlib.sha256(structure)
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            digest.update(name.encode())
            if isinstance(value.const_value, ir.ExternalTensor):
                array = np.ascontiguousarray(value.const_value.numpy())
                digest.update(array.reshape(-1).view(np.uint8).data)
            elif value.const_value is not None:
                digest.update(value.const_value.tobytes())
    return digest.hexdigest()
