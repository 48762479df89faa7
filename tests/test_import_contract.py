"""What importing costs: `import tilewright` and `tilewright --help` are fast in a fresh process."""

from __future__ import annotations

import resource
import subprocess
import sys

HEAVY = ("numpy", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "PIL", "jinja2")


def fresh(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return process.stdout


def loaded_by(code: str) -> set[str]:
    report = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    return set(fresh(report).rpartition("loaded:")[2].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import tilewright") & {*HEAVY, "pydantic", "typer", "rich"}


def test_help_loads_nothing_heavy() -> None:
    for arguments in (["--help"], ["build", "--help"], ["--version"]):
        loaded = loaded_by(f"from tilewright.cli import run_command; run_command({arguments})")
        assert "typer" in loaded
        assert not loaded & set(HEAVY), arguments


def test_help_takes_less_than_half_a_second() -> None:
    code = "from tilewright.cli import run_command; run_command(['--help'])"
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        fresh(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time: other processes on the machine do not count.
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert best < 0.5


def test_public_names() -> None:
    code = "import tilewright; print(*sorted(tilewright.__all__)); print(*dir(tilewright))"
    names = "Build InferenceSession TilewrightError __version__ build"
    assert fresh(code).splitlines() == [names, names]


def test_public_names_resolve() -> None:
    code = "import tilewright; [getattr(tilewright, n) for n in tilewright.__all__]; print('ok')"
    assert fresh(code).strip() == "ok"
