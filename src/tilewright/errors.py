"""The exception tree.  Every class is one sentence to the user: what, where, what to do.

    TilewrightError                     TW-0000  base; exit code 1
    ├── InputFileError                  TW-1xxx  a file that was given cannot be used
    │   ├── ModelError                  TW-11xx  the ONNX model
    │   ├── DataError                   TW-12xx  calibration or evaluation samples
    │   └── ArtifactError               TW-13xx  a graph file, program or container of ours
    ├── ConfigError                     TW-2xxx  an option or a configuration key
    ├── UnsupportedError                TW-3xxx  a valid request that this version cannot do
    │   ├── QuantizationError           TW-31xx  scales or types that the arithmetic refuses
    │   └── CompileError                TW-32xx  no program fits the target
    ├── MachineFault                    TW-4xxx  the simulated machine stopped
    └── EnvironmentFault                TW-5xxx  disk, memory, missing compiler or package

The code is stable; `docs/errors.md` has an entry for each.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TilewrightError(Exception):
    """An error whose text is the one line that the user reads.

    Args:
        message: what is wrong and where, without a final full stop.
        fix: what the user can do, an imperative clause; appended after a semicolon.
        code: the stable code; the class's own when omitted.
    """

    code = "TW-0000"

    def __init__(self, message: str, *, fix: str | None = None, code: str | None = None) -> None:
        self.message = message
        self.fix = fix
        if code is not None:
            self.code = code
        super().__init__(message if fix is None else f"{message}; {fix}")


class InputFileError(TilewrightError):
    code = "TW-1000"


class ModelError(InputFileError):
    code = "TW-1100"


class DataError(InputFileError):
    code = "TW-1200"


class ArtifactError(InputFileError):
    code = "TW-1300"


class ConfigError(TilewrightError):
    code = "TW-2000"


class UnsupportedError(TilewrightError):
    code = "TW-3000"


class QuantizationError(UnsupportedError):
    code = "TW-3100"


class CompileError(UnsupportedError):
    code = "TW-3200"


class MachineFault(TilewrightError):
    code = "TW-4000"


class EnvironmentFault(TilewrightError):
    code = "TW-5000"


def nearest(word: str, known: Iterable[str]) -> str:
    """The clause ``did you mean 'x'?`` for a misspelt name, or the list of known names."""
    names = sorted(known)
    close = nearest_name(word, names)
    return f"did you mean {close!r}?" if close else f"choose one of {', '.join(names)}"


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one most likely stands for; None if none is near."""
    folded = {name.casefold(): name for name in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None
