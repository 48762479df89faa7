"""Finds the shared library of the C runtime and declares its functions."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Final

from tilewright.errors import EnvironmentFault

VARIABLE: Final = "TILEWRIGHT_LIBRARY"
"""Environment variable with the path of another build of the library."""

NAMES: Final = ("libtilewright.so", "libtilewright.dylib")
RANK_LIMIT: Final = 8


class Options(ctypes.Structure):
    """`tw_options`."""

    _fields_ = [
        ("threads", c_int32),
        ("keep_tensors", c_int32),
        ("measure", c_int32),
        ("reserved", c_int32),
    ]


class RawDescription(ctypes.Structure):
    """`tw_description`."""

    _fields_ = [
        ("name", c_char_p),
        ("rank", c_int32),
        ("dtype", c_int32),
        ("scale", c_float),
        ("zero_point", c_int32),
        ("picture_channels", c_int32),
        ("reserved", c_int32),
        ("elements", c_size_t),
        ("bytes", c_size_t),
        ("shape", c_int64 * RANK_LIMIT),
        ("stored_shape", c_int64 * RANK_LIMIT),
        ("permutation", c_int64 * RANK_LIMIT),
    ]


_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "tw_version": (c_char_p, ()),
    "tw_status_text": (c_char_p, (c_int,)),
    "tw_model_load_memory": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), c_char_p, c_size_t)),
    "tw_model_release": (None, (c_void_p,)),
    "tw_model_name": (c_char_p, (c_void_p,)),
    "tw_model_isa": (c_char_p, (c_void_p,)),
    "tw_model_inputs": (c_size_t, (c_void_p,)),
    "tw_model_outputs": (c_size_t, (c_void_p,)),
    "tw_model_input": (c_int, (c_void_p, c_size_t, POINTER(RawDescription))),
    "tw_model_output": (c_int, (c_void_p, c_size_t, POINTER(RawDescription))),
    "tw_model_context_bytes": (c_size_t, (c_void_p, POINTER(Options))),
    "tw_context_create": (c_int, (c_void_p, POINTER(Options), POINTER(c_void_p))),
    "tw_context_release": (None, (c_void_p,)),
    "tw_context_set_float": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_context_set_codes": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_context_set_picture": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_context_run": (c_int, (c_void_p,)),
    "tw_context_get_float": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_context_get_codes": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_context_error": (c_char_p, (c_void_p,)),
    "tw_model_tensors": (c_size_t, (c_void_p,)),
    "tw_model_tensor": (c_int, (c_void_p, c_size_t, POINTER(RawDescription))),
    "tw_context_read_tensor": (c_int, (c_void_p, c_size_t, c_void_p, c_size_t)),
    "tw_model_nodes": (c_size_t, (c_void_p,)),
    "tw_model_node_name": (c_char_p, (c_void_p, c_size_t)),
    "tw_model_node_operator": (c_char_p, (c_void_p, c_size_t)),
    "tw_context_node_nanoseconds": (c_int64, (c_void_p, c_size_t)),
}


def find() -> Path:
    """Path of the shared library: `TILEWRIGHT_LIBRARY`, else the one installed with the package.

    Raises:
        EnvironmentFault: there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise EnvironmentFault(
                f"{VARIABLE} names {named}, which does not exist",
                fix="unset it or name libtilewright.so",
                code="TW-5101",
            )
        return path
    for directory in _package_directories():
        for name in NAMES:
            if (directory / "_lib" / name).is_file():
                return directory / "_lib" / name
    raise EnvironmentFault(
        "the C runtime is not installed with this package",
        fix="install it with `pip install .` (a C compiler is needed), or build it with cmake and "
        f"set {VARIABLE}",
        code="TW-5102",
    )


def _package_directories() -> list[Path]:
    """Where this package's files are; an editable install has two such places."""
    import tilewright.runtime

    return [Path(p) for p in tilewright.runtime.__path__]


@functools.cache
def load() -> ctypes.CDLL:
    """The library with argument and result types declared; calls release the GIL.

    Raises:
        EnvironmentFault: it is absent or does not load.
    """
    path = find()
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise EnvironmentFault(
            f"the C runtime {path.name} cannot be used: {error}",
            fix="install the package again",
            code="TW-5103",
        ) from error
    return library
