"""An ONNX network under construction from a set of weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.assets.checkpoint import Weights
from tilewright.errors import DataError
from tilewright.files import replacing

if TYPE_CHECKING:
    import onnx

IR_VERSION = 8


class Construction:
    """Nodes and initializers so far, and which weights they used."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._used: set[str] = set()

    def take(self, name: str) -> npt.NDArray[np.float32]:
        """A weight, which counts as used from now on.

        Raises:
            DataError: there is none of that name.
        """
        if name not in self.weights:
            raise DataError(f"weight {name!r} is missing: another variant?", code="TW-1223")
        self._used.add(name)
        return self.weights[name].astype(np.float32)

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """A new initializer; returns its name."""
        from onnx import numpy_helper

        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """A new node with one output, which has the node's name and is returned."""
        from onnx import helper

        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def require_all_used(self, ignored: tuple[str, ...]) -> None:
        """Every weight has been taken, but those whose name ends in one of `ignored`.

        Raises:
            DataError: naming one that is left.
        """
        left = {n for n in self.weights if not n.endswith(ignored)} - self._used
        if left:
            raise DataError(
                f"{len(left)} weights are unused, such as {min(left)!r}: another variant?",
                code="TW-1223",
            )

    def model(
        self,
        name: str,
        inputs: list[onnx.ValueInfoProto],
        outputs: list[onnx.ValueInfoProto],
        *,
        opset: int,
    ) -> onnx.ModelProto:
        """The checked model, its shapes inferred."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(self._nodes, name, inputs, outputs, self._initializers)
        model = helper.make_model(
            graph,
            producer_name="tilewright-assets",
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model)
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def save_model(model: onnx.ModelProto, target: Path) -> None:
    """Write the file under its final name when it is complete."""
    import onnx

    with replacing(target) as temporary:
        onnx.save(model, str(temporary))
