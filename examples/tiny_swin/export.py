"""Write a checkpoint's averaged weights as ONNX: `image` [1, 3, 32, 32] to `logits` [1, 10]."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from model import SwinConfig, TinySwin

OPSET = 17
TOLERANCE = 1e-4
"""Largest difference of a score between torch and onnxruntime."""


def trained(checkpoint: Path) -> TinySwin:
    """The network with the averaged weights of a checkpoint of train.py."""
    state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    model = TinySwin(SwinConfig(**state["config"]))
    model.load_state_dict(state["average"])
    return model.eval()


def export(model: TinySwin, path: Path) -> None:
    """Write and check the ONNX of a network, float32, batch 1."""
    image = torch.zeros(1, 3, model.config.image_size, model.config.image_size)
    torch.onnx.export(
        model,
        (image,),
        path,
        input_names=["image"],
        output_names=["logits"],
        opset_version=OPSET,
        dynamo=False,
    )
    onnx.checker.check_model(onnx.load(path), full_check=True)


@torch.no_grad()
def compare(model: TinySwin, path: Path) -> float:
    """Largest difference of the scores of random pictures between torch and onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = torch.randn(8, 3, model.config.image_size, model.config.image_size)
    expected = model(image).numpy()
    got = [session.run(["logits"], {"image": picture[None]})[0] for picture in image.numpy()]
    return float(np.abs(np.concatenate(got) - expected).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("model", type=Path, help="the ONNX file to write")
    arguments = parser.parse_args()
    model = trained(arguments.checkpoint)
    export(model, arguments.model)
    difference = compare(model, arguments.model)
    print(f"{arguments.model}: differs from torch by {difference:.1e} at most")
    if difference > TOLERANCE:
        raise SystemExit(f"more than the {TOLERANCE:g} that rounding explains")


if __name__ == "__main__":
    main()
