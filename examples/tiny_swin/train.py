"""Train the small Swin on CIFAR-10 for a given time; started again, it goes on where it was.

The learning rate follows the time trained so far instead of the epochs, so that a run ends when
it was promised to on any machine, busy or not.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from augment import augment
from model import SwinConfig, TinySwin
from pictures import CLASSES, load, normalise
from torch import Tensor, nn
from torch.nn import functional

LEARNING_RATE = 1.5e-3
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
WARM_UP = 0.04
"""Part of the training during which the learning rate grows."""
CALM = 0.85
"""Part of the training after which pictures are no longer mixed."""
AVERAGE_STEPS = 200
"""Steps over which the averaged weights, the ones exported, forget."""


@dataclass
class Progress:
    """How far a run is."""

    seconds: float = 0.0
    pictures: int = 0
    steps: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """What is trained, and all that a checkpoint must hold to go on."""

    model: TinySwin
    average: TinySwin
    optimizer: torch.optim.Optimizer
    progress: Progress


def new_run(config: SwinConfig) -> Run:
    """A network with first weights; norms, biases and position biases are not decayed."""
    model, average = TinySwin(config), TinySwin(config)
    average.load_state_dict(model.state_dict())
    average.eval().requires_grad_(False)
    named = dict(model.named_parameters())
    plain = [p for name, p in named.items() if p.ndim < 2 or "bias" in name]
    decayed = [p for name, p in named.items() if p.ndim >= 2 and "bias" not in name]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": WEIGHT_DECAY},
        {"params": plain},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=0.0, betas=(0.9, 0.98))
    return Run(model, average, optimizer, Progress())


def save(run: Run, path: Path) -> None:
    """Write a checkpoint beside the old one, then replace that at once."""
    state = {
        "model": run.model.state_dict(),
        "average": run.average.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "progress": asdict(run.progress),
        "config": asdict(run.model.config),
        "random": torch.get_rng_state(),
    }
    unfinished = path.with_suffix(".part")
    torch.save(state, unfinished)
    unfinished.replace(path)


def restore(run: Run, path: Path) -> Run:
    """The run as it was when `path` was written."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    run.model.load_state_dict(state["model"])
    run.average.load_state_dict(state["average"])
    run.optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return Run(run.model, run.average, run.optimizer, Progress(**state["progress"]))


def learning_rate(part: float) -> float:
    """Linear warm-up, then half a cosine to one hundredth, for a part 0..1 of the training."""
    if part < WARM_UP:
        return LEARNING_RATE * max(part / WARM_UP, 0.01)
    wave = 0.5 * (1.0 + math.cos(math.pi * (part - WARM_UP) / (1.0 - WARM_UP)))
    return LEARNING_RATE * (0.01 + 0.99 * wave)


def train_step(run: Run, pictures: Tensor, targets: Tensor, rate: float) -> float:
    """One update of the weights and of their average; returns the loss."""
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        scores = run.model(pictures.contiguous(memory_format=torch.channels_last))
    loss = functional.cross_entropy(scores.float(), targets, label_smoothing=LABEL_SMOOTHING)
    run.optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.optimizer.step()
    run.progress.steps += 1
    keep = min(1.0 - 1.0 / AVERAGE_STEPS, run.progress.steps / (run.progress.steps + 10))
    with torch.no_grad():
        values = run.model.state_dict()
        for name, mean in run.average.state_dict().items():
            if mean.is_floating_point():
                mean.lerp_(values[name], 1.0 - keep)
    return loss.item()


@torch.no_grad()
def accuracy(model: TinySwin, pictures: Tensor, labels: Tensor) -> float:
    """Per cent of uint8 pictures [N, 3, 32, 32] of which the highest score is the label's."""
    hits = 0
    for batch, truth in zip(torch.split(pictures, 250), torch.split(labels, 250), strict=True):
        hits += int((model(normalise(batch)).argmax(dim=1) == truth).sum())
    return 100.0 * hits / len(labels)


def report(run: Run, losses: list[float], test: tuple[Tensor, Tensor], log: Path) -> None:
    """Score the averaged weights, and write a row of the log."""
    progress = run.progress
    row = {
        "seconds": round(progress.seconds, 1),
        "pictures": progress.pictures,
        "learning_rate": round(run.optimizer.param_groups[0]["lr"], 7),
        "loss": round(sum(losses) / max(len(losses), 1), 4),
        "test_accuracy": round(accuracy(run.average, *test), 2),
    }
    progress.rows.append(row)
    with log.open("w", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerows(progress.rows)
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def train(run: Run, arguments: argparse.Namespace) -> None:
    """Train until the time is over; a checkpoint and a row of the log now and then."""
    pictures, labels = load(arguments.data)
    test = load(arguments.test)
    progress, total = run.progress, 60.0 * arguments.minutes
    losses: list[float] = []
    saved = progress.seconds
    while progress.seconds < total:
        for chosen in torch.split(torch.randperm(len(labels)), arguments.batch):
            started = time.monotonic()
            part = min(progress.seconds / total, 1.0)
            targets = functional.one_hot(labels[chosen], len(CLASSES)).float()
            changed, targets = augment(normalise(pictures[chosen]), targets, part < CALM)
            losses.append(train_step(run, changed, targets, learning_rate(part)))
            progress.pictures += len(chosen)
            progress.seconds += time.monotonic() - started
            if progress.seconds >= total:
                break
            if progress.seconds - saved > 60.0 * arguments.checkpoint_minutes:
                report(run, losses, test, arguments.out / "training.csv")
                save(run, arguments.out / "checkpoint.pt")
                losses, saved = [], progress.seconds
    report(run, losses, test, arguments.out / "training.csv")
    save(run, arguments.out / "checkpoint.pt")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="training pictures: folder or tar")
    parser.add_argument("--test", type=Path, required=True, help="test pictures: folder or tar")
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoint and log")
    parser.add_argument("--minutes", type=float, default=60.0, help="time to train, in all")
    parser.add_argument("--checkpoint-minutes", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = new_run(SwinConfig())
    checkpoint = arguments.out / "checkpoint.pt"
    if checkpoint.exists():
        run = restore(run, checkpoint)
    train(run, arguments)


if __name__ == "__main__":
    main()
