"""compiled.onnx: the file that a user ships.

An ONNX model whose CPU nodes are ordinary ONNX and whose NPU islands are single nodes of the domain
`ai.tilewright`.  Each such node carries, as tensor attributes of raw bytes, its graph file and one
program per NPU mode.  onnx.checker and Netron open it; what is inside the bytes is the business of
`tilewright.graphfile` and `tilewright.program`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import ArtifactError, TilewrightError
from tilewright.files import replacing

if TYPE_CHECKING:
    import onnx

DOMAIN = "ai.tilewright"
ISLAND_OP = "NpuGraph"
DOMAIN_VERSION = 1
METADATA_PREFIX = "pkg.tilewright."

_GRAPH = "graph_file"
_PROGRAM = "program_"

# Protobuf refuses messages of 2 GiB.
LARGEST_BYTES = (1 << 31) - 1


@dataclass(frozen=True)
class Artifact:
    """What one island carries.

    Attributes:
        name: of the island and of its node.
        graph: the graph file, byte for byte.
        programs: NPU mode -> encoded program; empty for targets that run the graph itself.
    """

    name: str
    graph: bytes
    programs: Mapping[str, bytes]


@dataclass(frozen=True)
class Container:
    """A compiled model in memory.

    Attributes:
        host: the whole model with the islands' nodes, their attributes left out.
        artifacts: in execution order.
        metadata: what the tool noted, keys without the `pkg.tilewright.` prefix.
    """

    host: onnx.ModelProto
    artifacts: tuple[Artifact, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Name of the target that it was compiled for."""
        return self.metadata.get("target", "")

    @property
    def modes(self) -> tuple[str, ...]:
        """NPU modes that it holds programs for, in the order of the build."""
        return tuple(self.artifacts[0].programs) if self.artifacts else ()


def write_container(container: Container, path: str | os.PathLike[str]) -> None:
    """Write the file, complete or not at all; the same container gives the same bytes.

    Raises:
        ArtifactError: the model exceeds what one ONNX file can hold.
    """
    content = to_proto(container).SerializeToString(deterministic=True)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def to_proto(container: Container) -> onnx.ModelProto:
    """The ONNX model with the islands' bytes inside."""
    import onnx

    total = sum(
        len(a.graph) + sum(len(p) for p in a.programs.values()) for a in container.artifacts
    )
    if total + container.host.ByteSize() > LARGEST_BYTES:
        raise ArtifactError(
            f"the compiled model has {total >> 20} MiB, and an ONNX file holds at most 2047",
            fix="cut the model or compile fewer modes per file",
            code="TW-1304",
        )
    model = onnx.ModelProto()
    model.CopyFrom(container.host)
    by_name = {a.name: a for a in container.artifacts}
    for node in model.graph.node:
        if node.domain == DOMAIN:
            artifact = by_name[node.name]
            del node.attribute[:]
            _attach(node, _GRAPH, artifact.graph)
            for mode, program in artifact.programs.items():
                _attach(node, _PROGRAM + mode, program)
    if not any(o.domain == DOMAIN for o in model.opset_import) and by_name:
        model.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    kept = [p for p in model.metadata_props if not p.key.startswith(METADATA_PREFIX)]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    for key in sorted(container.metadata):
        model.metadata_props.add(key=METADATA_PREFIX + key, value=container.metadata[key])
    return model


def _attach(node: onnx.NodeProto, name: str, content: bytes) -> None:
    import onnx

    attribute = node.attribute.add(name=name, type=onnx.AttributeProto.TENSOR)
    attribute.t.name = name
    attribute.t.data_type = onnx.TensorProto.UINT8
    attribute.t.dims.append(len(content))
    attribute.t.raw_data = content


def read_container(path: str | os.PathLike[str]) -> Container:
    """Read a compiled model.

    Raises:
        ArtifactError: missing, damaged, or an ONNX file that Tilewright has not compiled.
    """
    import onnx
    from google.protobuf.message import DecodeError

    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ArtifactError(
            f"compiled model {str(path)!r} cannot be read: {error.strerror}",
            fix="give the compiled.onnx of a build",
            code="TW-1301",
        ) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError) as error:
        raise _damaged(path) from error
    try:
        return from_proto(model)
    except TilewrightError as error:
        raise ArtifactError(
            f"{str(path)!r}: {error.message}", fix=error.fix, code=error.code
        ) from error
    except (TypeError, ValueError) as error:  # protobuf's answer to text that is not UTF-8
        raise _damaged(path) from error


def _damaged(path: str | os.PathLike[str]) -> ArtifactError:
    return ArtifactError(
        f"{str(path)!r} is not an ONNX file, or is cut off", fix="build it again", code="TW-1302"
    )


def from_proto(model: onnx.ModelProto) -> Container:
    """Take the islands' bytes out of a parsed model.

    Raises:
        ArtifactError: it was not compiled by Tilewright, or a node lacks its graph.
    """
    metadata = {
        p.key.removeprefix(METADATA_PREFIX): p.value
        for p in model.metadata_props
        if p.key.startswith(METADATA_PREFIX)
    }
    if "target" not in metadata:
        raise ArtifactError(
            "not a compiled model",
            fix="give the compiled.onnx that `tilewright build` or `compile` wrote",
            code="TW-1303",
        )
    artifacts = []
    for node in model.graph.node:
        if node.domain == DOMAIN:
            artifacts.append(_artifact(node))
            del node.attribute[:]
    return Container(model, tuple(artifacts), metadata)


def _artifact(node: onnx.NodeProto) -> Artifact:
    tensors = {a.name: a.t.raw_data for a in node.attribute}
    if node.op_type != ISLAND_OP or _GRAPH not in tensors:
        raise ArtifactError(
            f"node {node.name!r} of domain {DOMAIN} carries no graph",
            fix="build the model again",
            code="TW-1302",
        )
    programs = {
        name.removeprefix(_PROGRAM): content
        for name, content in tensors.items()
        if name.startswith(_PROGRAM)
    }
    return Artifact(node.name, tensors[_GRAPH], programs)
