"""The runtime under AddressSanitizer and UndefinedBehaviorSanitizer: sound and damaged files."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from random_operators import GENERATORS, Draw
from runtime_harness import graph_of
from test_c_operators import HERE

from tilewright.graphfile import write

ROOT = Path(__file__).parents[2]
X86_64 = platform.machine().lower() in ("x86_64", "amd64")
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]
FLAGS = {
    "avx2": ["-mavx2"],
    "avxvnni": ["-mavx2", "-mavxvnni"],
    "avx512": AVX512,
    "avx512vnni": [*AVX512, "-mavx512vnni"],
}
"""By the end of a file's name, as in CMakeLists.txt."""
COMMON = [
    "-std=c11", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT / 'csrc' / 'include'}",
]  # fmt: skip


def run(*command, **environment):
    result = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Folder of the sanitized programs; optimisation would only cost time here."""
    folder = tmp_path_factory.mktemp("sanitized")
    compiler = os.environ.get("CC", "cc")

    def compile_one(source):
        end = source.stem.rsplit("_", 1)[-1]
        if end in FLAGS and not X86_64:
            return None
        result = folder / f"{source.stem}.o"
        flags = [*COMMON, *FLAGS.get(end, []), *(["-DTW_X86_64=1"] if X86_64 else [])]
        run(compiler, *flags, "-c", source, "-o", result)
        return result

    sources = [*sorted((ROOT / "csrc").glob("*/*.c"))]
    with ThreadPoolExecutor(2) as pool:
        objects = [o for o in pool.map(compile_one, sources) if o is not None]
    for program in ("run_graph", "fuzz_graph"):
        source = ROOT / "tests" / "c" / f"{program}.c"
        run(compiler, *COMMON, source, *objects, "-pthread", "-lm", "-o", folder / program)
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A few graph files of every operator."""
    folder = tmp_path_factory.mktemp("graphs")
    paths = []
    for name, generate in GENERATORS.items():
        for seed in range(6 if name in ("Conv", "Dense") else 2):
            drawn = generate(Draw(seed))
            paths.append(folder / f"{name}{seed}.twg")
            paths[-1].write_bytes(write(graph_of(drawn.op, drawn.inputs, drawn.output)))
    return paths


@pytest.mark.parametrize("isa", HERE)
def test_damaged_files(programs, files, isa):
    output = run(programs / "fuzz_graph", 25, 1, *files, TILEWRIGHT_ISA=isa)
    assert output.count("accepted") == len(files)


def test_a_program(programs, files):
    output = run(programs / "run_graph", files[0])
    assert output.startswith("input x0")
    assert "output y" in output


def test_a_missing_file(programs, tmp_path):
    result = subprocess.run(
        [programs / "run_graph", tmp_path / "none.twg"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "cannot be opened" in result.stderr
