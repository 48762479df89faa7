"""disasm, view, targets, ops: looking at what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console, options


def disasm(
    compiled: options.Compiled,
    npu_mode: options.Mode = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="The integer graph instead of the program.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: stdout.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Print the program of a compiled model as text.

    Example: tilewright disasm out/compiled.onnx --npu-mode NPU1 | less
    """
    from tilewright.compiled import CompiledModel
    from tilewright.files import replacing

    model = CompiledModel(compiled)
    texts = model.graph_texts() if graph else model.program_texts(npu_mode)
    if json:
        console.emit({"islands": texts})
        return
    text = "\n".join(texts.values())
    if output is None:
        typer.echo(text, nl=False)
    else:
        with replacing(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
        console.note(f"wrote {output}")


def view(
    model: options.Model,
    port: Annotated[int, typer.Option(help="Port of the local server.")] = 8080,
    browse: Annotated[
        bool, typer.Option("--browse/--no-browse", help="Open a browser window.")
    ] = True,
    json: options.Json = False,
) -> None:
    """Open a model in Netron (extra `netron`).

    Example: tilewright view out/quantized.onnx
    """
    from tilewright.errors import EnvironmentFault, InputFileError

    if not model.exists():
        raise InputFileError(f"there is no file {str(model)!r}", code="TW-1001")
    try:
        import netron
    except ImportError:
        raise EnvironmentFault(
            "Netron is not installed", fix="pip install 'tilewright[netron]'", code="TW-5020"
        ) from None
    address = netron.start(str(model), address=port, browse=browse)
    if json:
        console.emit({"address": f"http://{address[0]}:{address[1]}"})
    netron.wait()


def targets(
    name: Annotated[str | None, typer.Argument(help="A target to show in full.")] = None,
    json: options.Json = False,
) -> None:
    """List the chips that models can be built for, or every number of one.

    Example: tilewright targets ax650n
    """
    from tilewright.listing import target_details, target_rows

    if name is None:
        rows = target_rows()
        if json:
            console.emit({"targets": rows})
        else:
            columns = ("name", "title", "modes", "activations", "weights")
            console.table(columns, [tuple(str(r[c]) for c in columns) for r in rows])
        return
    details = target_details(name)
    if json:
        console.emit(details)
        return
    console.say(f"{details['name']}: {details['title']} ({details['vendor']})")
    cells = [(n["key"], n["value"], n["unit"], n["source"], n["note"]) for n in details["numbers"]]
    console.table(("key", "value", "unit", "source", "note"), cells)


def ops(
    target: options.Target = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The table of SUPPORTED_OPS.md.")
    ] = False,
    json: options.Json = False,
) -> None:
    """List the ONNX operators that run on the NPU, with their limits.

    Example: tilewright ops
    """
    from tilewright.listing import operator_rows, operators_page

    rows = operator_rows(target)
    if json:
        console.emit({"operators": rows})
    elif markdown:
        typer.echo(operators_page(), nl=False)
    else:
        columns = ("onnx", "integer operators", "types", "limits")
        keys = ("onnx", "operators", "types", "limits")
        console.table(columns, [tuple(str(r[k]) for k in keys) for r in rows])
