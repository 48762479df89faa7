"""Models for the importer's tests in ONNX's text form, the way exporters write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import numpy_helper, parser


def graph(
    body: str,
    inputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    domains: str = "",
) -> ir.Model:
    """`graph("m = ReduceMean<axes=[2]>(x)  y = Sub(x, m)", {"x": (1, 4, 8)})`.

    Names with a dot (`0.5`, `1e-5`) are float scalars; `[1, 2]` is an int64 vector.
    """
    constants = dict(constants or {})
    body = _with_literals(body, constants)
    declared = ", ".join(f"float{list(shape)} {name}" for name, shape in inputs.items())
    made = ", ".join(f"float {name}" for name in outputs)
    version = 8 if opset < 19 else 10
    text = f'<ir_version: {version}, opset_import: ["" : {opset}{domains}]>\n'
    proto = parser.parse_model(f"{text}net ({declared}) => ({made}) {{ {body} }}")
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    for position, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{position}"
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return ir.serde.deserialize_model(proto)


def _with_literals(body: str, constants: dict[str, Any]) -> str:
    """Numbers and integer lists among the operands become named constants."""

    def named(match: re.Match[str]) -> str:
        text = match.group(0)
        name = f"c{len(constants)}"
        if text.startswith("["):
            constants[name] = np.asarray([int(item) for item in text[1:-1].split(",")], np.int64)
        else:
            constants[name] = np.float32(text)
        return name

    def operands(match: re.Match[str]) -> str:
        return re.sub(r"\[[-0-9, ]+\]|(?<![\w.])-?\d+\.?\d*(e-?\d+)?(?![\w.])", named, match[0])

    return re.sub(r"\((?=[^()]*\))[^()]*\)", operands, body)
