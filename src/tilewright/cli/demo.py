"""The main job on a real network: `make demo`.

EfficientNet-Lite0 with its ImageNet weights, built for ax650n from photographs, classifies a cat
three ways: float, on the simulated NPU, on this CPU.  The last two agree to the last bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import console

if TYPE_CHECKING:
    from tilewright.api import Build
    from tilewright.compiled import CompiledModel, Fed
    from tilewright.execution import Array

TARGET = "ax650n"
MODES = ("NPU1", "NPU3")
MODEL, CAT = "efficientnet-lite0", "photo-chelsea"
VIEW_SIZE = 256
"""Of a calibration picture; preprocessing takes the central 224 of it without resampling."""
DOMESTIC_CATS = (281, 282, 285)
RUNS, WARMUP = 100, 10


def main() -> int:
    """Run the demonstration; 1 when it does not show what it promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("demo"))
    folder = parser.parse_args().output

    from tilewright import assets

    start = time.perf_counter()
    views = write_views(folder / "calibration")
    result = build(assets.asset_path(MODEL), folder / "build", views)
    model = result.model()
    fed = model.sample(assets.asset_path(CAT))
    scores = classify(result, model, fed)
    problems = check(scores)
    print_classes(scores)
    print_speed(result, model, fed)
    print_files(result, views)
    console.say(f"\n{time.perf_counter() - start:.0f} s in all\n")
    print_table(result)
    for problem in problems:
        console.warn(problem)
    return 1 if problems else 0


def write_views(folder: Path) -> Path:
    """32 crops of permissively licensed photographs, the cat not among them, as picture files."""
    from PIL import Image

    from tilewright.assets.pictures import calibration_views

    folder.mkdir(parents=True, exist_ok=True)
    views = calibration_views(VIEW_SIZE)
    for index, pixels in enumerate(views.pixels):
        Image.fromarray(pixels).save(folder / f"view{index:02}.png")
    return folder


def build(model: Path, folder: Path, views: Path) -> Build:
    """Through every stage; what took how long is printed."""
    from tilewright.api import build as run_build
    from tilewright.cli.verbs.produce import print_build

    console.say(
        f"tilewright build {model.name} --target {TARGET} --npu-mode {','.join(MODES)}"
        f" --calib {views} --preprocess lite\n"
    )
    with console.progress() as progress:
        result = run_build(
            model,
            target=TARGET,
            npu_modes=MODES,
            calibration=views,
            output=folder,
            preprocess="lite",
            progress=progress,
        )
    print_build(result)
    report = result.report()
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.seconds.items())
    console.say(f"stages: {spent}\n")
    return result


def classify(result: Build, model: CompiledModel, fed: Fed) -> dict[str, Array]:
    """Scores of the picture: float, simulated in every mode, run on this CPU."""
    from tilewright.building import OPTIMIZED
    from tilewright.stages import float_runner

    output = model.plan.outputs[0].name
    scores = {"float": float_runner(result.folder / OPTIMIZED)(fed.floats)[output]}
    for mode in MODES:
        scores[f"simulated {mode}"] = model.simulate(fed.values, mode).outputs[output]
    scores["run"] = model.execute(fed.values)[output]
    return scores


def check(scores: dict[str, Array]) -> list[str]:
    """What the demonstration promises and does not hold."""
    exact = scores["run"].tobytes()
    problems = [
        f"the scores simulated in {mode} and run on this CPU differ"
        for mode in MODES
        if scores[f"simulated {mode}"].tobytes() != exact
    ]
    best = {name: int(values.argmax()) for name, values in scores.items()}
    if len(set(best.values())) > 1:
        problems.append(f"the best class is not the same everywhere: {best}")
    if best["float"] not in DOMESTIC_CATS:
        problems.append(f"the best class is {best['float']}, not a domestic cat")
    return problems


def print_classes(scores: dict[str, Array]) -> None:
    """The three top-5 lists side by side."""
    from tilewright.evaluation.labels import class_names
    from tilewright.evaluation.statistics import as_probabilities, top_classes

    shown = {
        "float (onnxruntime)": scores["float"],
        "simulated NPU": scores[f"simulated {MODES[0]}"],
        "run on this CPU": scores["run"],
    }
    names = class_names(scores["float"].size, None) or []
    columns = []
    for values in shown.values():
        shares = as_probabilities(values)
        columns.append(
            [f"{c:4} {shares[c]:6.1%}  {_short(names[c])}" for c in top_classes(values, 5)]
        )
    console.table(list(shown), list(zip(*columns, strict=True)))
    console.say(
        f"simulated ({', '.join(MODES)}) and run: "
        + ("identical to the last bit\n" if not check(scores) else "see the warnings below\n")
    )


def _short(name: str, length: int = 26) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def print_speed(result: Build, model: CompiledModel, fed: Fed) -> None:
    """Cycles and latencies: the simulated chip with its lower bound, and this host."""
    rows: list[tuple[str, ...]] = []
    for mode, figures in result.report().modes.items():
        cycles = f"max_cycle {figures.max_cycle:,}"
        rows.append(
            (
                f"{TARGET} {mode}, simulated",
                f"{figures.latency_ms:.3f} ms",
                f"at least {figures.lower_bound_ms:.3f} ms; {cycles}",
            )
        )
    ours = model.run(fed.values, repeat=RUNS, warmup=WARMUP)
    theirs = _onnxruntime_milliseconds(result, fed)
    low, high, _ = ours.milliseconds
    rows.append(
        (
            f"this host, {ours.threads} threads, 8 bits",
            f"{1000 * statistics.median(ours.seconds):.3f} ms",
            f"min {low:.3f}, max {high:.3f}, {RUNS} runs",
        )
    )
    rows.append(
        (
            "this host, onnxruntime float32",
            f"{statistics.median(theirs):.3f} ms",
            f"min {min(theirs):.3f}, max {max(theirs):.3f}",
        )
    )
    console.table(("latency", "median", ""), rows, numbers=(1,))


def _onnxruntime_milliseconds(result: Build, fed: Fed) -> list[float]:
    from tilewright.building import OPTIMIZED
    from tilewright.stages import float_runner

    run = float_runner(result.folder / OPTIMIZED)
    times = []
    for index in range(WARMUP + RUNS):
        start = time.perf_counter()
        run(fed.floats)
        if index >= WARMUP:
            times.append(1000 * (time.perf_counter() - start))
    return times


def print_files(result: Build, views: Path) -> None:
    """Where everything is."""
    console.say("\nwrote")
    for path in [*sorted(p for p in result.folder.iterdir() if p.is_file()), views]:
        console.say(f"  {path}")


def print_table(result: Build) -> None:
    """The closing table: mode, share of the chip, milliseconds, frames per second."""
    from tilewright.targets import load_target

    target = load_target(TARGET)
    rows: list[tuple[Any, ...]] = [
        (
            mode,
            f"{target.mode_groups(mode)}/{target.groups} of the NPU, {figures.tops:.1f} TOPS",
            f"{figures.latency_ms:.2f}",
            f"{figures.fps:.0f}",
        )
        for mode, figures in result.report().modes.items()
    ]
    console.table(("mode", "share", "ms", "frames/s"), rows, numbers=(2, 3))


if __name__ == "__main__":
    sys.exit(main())
