"""One operator, or a graph of them, through the C runtime on a chosen instruction set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.graph import Border, Graph, Node, Operator, TensorType
from tilewright.runtime import Runtime

ISAS = ("portable", "avx2", "avxvnni", "avx512vnni")


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """Models loaded inside use the kernels of `name`."""
    before = os.environ.get("TILEWRIGHT_ISA")
    os.environ["TILEWRIGHT_ISA"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["TILEWRIGHT_ISA"]
        else:
            os.environ["TILEWRIGHT_ISA"] = before


def graph_of(op: Operator, inputs: Sequence[TensorType], output: TensorType) -> Graph:
    """A graph of one node; its borders have the stored layout."""
    names = [f"x{i}" for i in range(len(inputs))]
    tensors = dict(zip(names, inputs, strict=True)) | {"y": output}
    order = {n: tuple(range(len(t.shape))) for n, t in tensors.items()}
    return Graph(
        "one",
        tensors,
        (Node("node", op, tuple(names), ("y",), ()),),
        tuple(Border(n, n, tensors[n].shape, order[n]) for n in names),
        (Border("y", "y", output.shape, order["y"]),),
    )


def run_operator(
    op: Operator,
    arrays: Sequence[Any],
    types: Sequence[TensorType],
    output: TensorType,
    threads: int = 1,
) -> Any:
    runtime = Runtime(graph_of(op, types, output), threads=threads)
    y = runtime.run_codes({f"x{i}": a for i, a in enumerate(arrays)})["y"]
    runtime.close()
    return y


def random_codes(rng: np.random.Generator, t: TensorType) -> Any:
    """Codes of the type's range, its ends more often than others."""
    lo, hi = t.dtype.range
    codes = rng.integers(lo, hi + 1, t.shape)
    ends = rng.random(t.shape)
    codes = np.where(ends < 0.02, lo, np.where(ends > 0.98, hi, codes))
    return codes.astype(t.dtype.numpy)
