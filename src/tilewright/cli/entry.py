"""The process: exit codes, one-line errors, and what happens when something unforeseen goes wrong.

Exit codes: 0 done, 1 an error of the user's input or of ours, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

from tilewright.cli.interrupt import CODE as INTERRUPTED
from tilewright.cli.interrupt import Interrupts
from tilewright.cli.startup import prepare
from tilewright.errors import EnvironmentFault, TilewrightError, nearest_name

USAGE_CODE = "TW-2100"
BUG_CODE = "TW-9000"

_WORKING_FOLDER = re.compile(r"/\.partial-\w+")
"""Where files are until they are complete; users know them by their final place."""


def main() -> int:
    """The process: its arguments to its exit code."""
    given = sys.argv[1:]
    prepare()
    interrupts = Interrupts(lambda: _report_interrupt(given))
    interrupts.install()
    code = run_command(given, interrupts)
    if code == INTERRUPTED:
        interrupts.leave()
    return code


def run_command(arguments: Sequence[str], interrupts: Interrupts | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        _report_interrupt(given)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone: there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TilewrightError as error:
        return _fail(given, error)
    except MemoryError:
        fix = "close other programs or use fewer --jobs"
        return _fail(given, EnvironmentFault("out of memory", fix=fix, code="TW-5003"))
    except OSError as error:
        return _fail(given, _os_fault(error)) if error.errno in _OS_CODES else _bug(given)
    except Exception:  # noqa: BLE001 - the last line of defence: no traceback reaches the user
        if interrupts is not None and interrupts.seen:
            _report_interrupt(given)
            return INTERRUPTED
        return _bug(given)


def _run(given: list[str]) -> int:
    import typer

    from tilewright.cli.app import app

    try:
        result = app(args=given, prog_name="tilewright", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        if error.exit_code != 2:
            raise
        return _usage(given, _usage_text(error), getattr(error, "ctx", None))
    if result == INTERRUPTED:  # typer's code for ctrl-C, which it does not report
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _usage_text(error: Any) -> str:
    """What typer says, and the nearest option where one is unknown: typer's own is the first."""
    unknown, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if unknown is None or context is None or not hasattr(error, "possibilities"):
        return str(error.format_message())
    options = [o for p in context.command.params for o in (*p.opts, *p.secondary_opts)]
    near = nearest_name(unknown.lstrip("-"), [o[2:] for o in options if o.startswith("--")])
    return f"{error.message}; did you mean --{near}?" if near else str(error.message)


def _usage(given: list[str], message: str, context: object) -> int:
    text = " ".join(message.split()).rstrip(".")
    if not text:  # a group without a verb has printed its help
        return 2
    text = re.sub(r"\. Did you mean", "; did you mean", text)
    verb = getattr(context, "command_path", "tilewright")
    _report(given, f"{text[:1].lower()}{text[1:]}; see `{verb} --help`", USAGE_CODE)
    return 2


def _report_interrupt(given: list[str]) -> None:
    _report(given, "interrupted; nothing was left half-written", "TW-0130")


def _fail(given: list[str], error: TilewrightError) -> int:
    if _debug(given):
        traceback.print_exc()
    _report(given, str(error), error.code)
    return 1


_OS_CODES = {
    errno.ENOSPC: ("TW-5001", "no space left on the disk", "free some space, or choose another -o"),
    errno.EDQUOT: ("TW-5001", "the disk quota is used up", "free some space, or choose another -o"),
    errno.EFBIG: ("TW-5001", "the file is too large for this disk", "choose another -o"),
    errno.EROFS: ("TW-5002", "the folder is read-only", "choose another -o"),
    errno.EACCES: ("TW-5002", "permission denied", "check who may read and write there"),
    errno.EPERM: ("TW-5002", "permission denied", "check who may read and write there"),
    errno.ENOENT: ("TW-5004", "no such file or folder", "check the path"),
    errno.ENOTDIR: ("TW-5004", "not a folder", "check the path"),
    errno.EEXIST: ("TW-5004", "a file where a folder is needed", "choose another -o"),
    errno.ENAMETOOLONG: ("TW-5004", "the name is too long", "choose a shorter one"),
    errno.EIO: ("TW-5000", "the device reports an error", "check the disk"),
    errno.EISDIR: ("TW-5004", "a folder where a file is needed", "check the path"),
    errno.EMFILE: ("TW-5003", "too many open files", "raise `ulimit -n`"),
    errno.ENOMEM: ("TW-5003", "out of memory", "close other programs"),
}


def _os_fault(error: OSError) -> EnvironmentFault:
    code, what, fix = _OS_CODES[error.errno or 0]
    where = f"{error.filename}: " if error.filename else ""
    return EnvironmentFault(f"{where}{what}", fix=fix, code=code)


def _bug(given: list[str]) -> int:
    error = sys.exc_info()[1]
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    if _debug(given):
        traceback.print_exc()
        where = "the traceback is above"
    else:
        where = f"the traceback is in {_saved_traceback(given)}"
    _report(given, f"this is a bug in Tilewright ({what}); {where}, please report it", BUG_CODE)
    return 1


def _saved_traceback(given: list[str]) -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tilewright-", suffix=".traceback.txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"arguments: {given}\n\n{traceback.format_exc()}")
            return file.name
    except OSError:
        return "reach with `tilewright --debug ...`"


def _debug(given: list[str]) -> bool:
    return "--debug" in given or bool(os.environ.get("TILEWRIGHT_DEBUG"))


def _report(given: list[str], message: str, code: str) -> None:
    """The one line on stderr; with --json also the object that scripts wait for on stdout."""
    line = _WORKING_FOLDER.sub("", " ".join(message.split()))
    with contextlib.suppress(OSError):
        print(f"tilewright: error[{code}]: {line}", file=sys.stderr)  # noqa: T201
        if "--json" in given:
            error = {"code": code, "message": line}
            print(json.dumps({"error": error}, ensure_ascii=False))  # noqa: T201
