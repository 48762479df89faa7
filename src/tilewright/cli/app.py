"""The verbs, in the order in which a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tilewright.cli.verbs import assets, evaluate, execute, hub, look, pictures, produce, start

EPILOG = (
    "Start with `tilewright doctor`, then"
    " `tilewright build MODEL -o DIR --target ax650n --calib PICTURES --preprocess imagenet`."
)

app = typer.Typer(
    name="tilewright",
    help="An open NPU compiler: ONNX in, verified program out, simulated and run on this CPU.",
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from tilewright import __version__

        typer.echo(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every verb; `--debug` is read where errors are reported."""


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (start.info, start.init, start.doctor, hub.hf_export),
    "Build": (produce.build, produce.optimize, produce.quantize, produce.compile_),
    "Use": (
        execute.simulate,
        execute.run,
        pictures.classify,
        pictures.detect,
        evaluate.evaluate,
    ),
    "Look": (look.disasm, look.view, look.targets, look.ops, assets.fetch),
}

for panel, verbs in _GROUPS.items():
    for verb in verbs:
        app.command(verb.__name__.rstrip("_").replace("_", "-"), rich_help_panel=panel)(verb)
