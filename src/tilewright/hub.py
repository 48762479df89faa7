"""Image classifiers of the transformers library, from a name or a folder to ONNX (extra `hub`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import EnvironmentFault, ModelError
from tilewright.files import replacing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

INPUT, OUTPUT = "pixel_values", "logits"


@dataclass(frozen=True)
class Exported:
    """An exported classifier.

    Attributes:
        path: the ONNX file.
        shape: of its input, [N, 3, H, W].
        difference: largest absolute difference of the logits between torch and onnxruntime on
            seeded noise.
        preprocessing: keys of `[input]` in the build configuration, as the model's own processor
            says.
        predicted: (class, name, probability) of the picture, if one was given.
    """

    path: Path
    shape: tuple[int, ...]
    difference: float
    preprocessing: Mapping[str, Any]
    predicted: tuple[int, str, float] | None


def export_classifier(
    name: str, output: Path, *, opset: int = 18, picture: Path | None = None
) -> Exported:
    """Load by name, export, simplify, check, and classify a picture.

    Args:
        name: of a model hub, such as microsoft/swin-tiny-patch4-window7-224, or a local folder.
        opset: of the export; the simplified file may have a newer one.

    Raises:
        EnvironmentFault: torch or transformers is not installed.
        ModelError: there is no such classifier, or it cannot be exported.
    """
    network, processor = _load(name)
    size = _input_size(network.config, processor)
    with replacing(output) as temporary:
        difference = _export(network, size, temporary, opset)
        predicted = None if picture is None else _classify(temporary, network, processor, picture)
    return Exported(output, (1, 3, *size), difference, _preprocessing(processor, size), predicted)


def _load(name: str) -> tuple[Any, Any]:
    try:
        from transformers import AutoImageProcessor, AutoModelForImageClassification
        from transformers.utils import logging
    except ImportError as error:
        raise EnvironmentFault(
            f"exporting from the hub needs {error.name or 'transformers'}, which is not installed",
            fix="pip install 'tilewright[hub]'",
            code="TW-5021",
        ) from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # torch's exporter stumbles over the fused attention kernel; "eager" is plain operators.
        network = AutoModelForImageClassification.from_pretrained(name, attn_implementation="eager")
        processor = AutoImageProcessor.from_pretrained(name)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(
            f"no image classifier {name!r} can be loaded: {first}",
            fix="check the name and the network, or give a folder that save_pretrained wrote",
            code="TW-1150",
        ) from None
    return network.eval(), processor


def _input_size(config: Any, processor: Any) -> tuple[int, int]:
    """Height and width of the network's input."""
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    crop = getattr(processor, "crop_size", None) or getattr(processor, "size", None) or {}
    edge = int(crop.get("height") or crop.get("shortest_edge") or 224)
    return edge, int(crop.get("width") or edge)


def _export(network: Any, size: tuple[int, int], output: Path, opset: int) -> float:
    """Write the simplified, checked ONNX file; returns the largest difference from torch."""
    import logging

    import numpy as np
    import onnx
    import torch

    from tilewright.importer import import_model, save
    from tilewright.stages import float_runner

    class Logits(torch.nn.Module):  # type: ignore[misc]
        """The logits alone, by position."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixel_values: Any) -> Any:
            return self.network(pixel_values=pixel_values).logits

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    noise = np.random.default_rng(0).standard_normal((1, 3, *size)).astype(np.float32)
    example = torch.from_numpy(noise)
    try:
        program = torch.onnx.export(
            Logits().eval(),
            (example,),
            input_names=[INPUT],
            output_names=[OUTPUT],
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    except Exception as error:  # torch's exporter has no common base class of its errors
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"torch cannot export it: {first}", code="TW-1151") from error
    assert program is not None
    imported = import_model(program.model)
    save(imported.model, output)
    onnx.checker.check_model(str(output), full_check=True)
    with torch.no_grad():
        exact = Logits().eval()(example).numpy()
    found = float_runner(output)({INPUT: noise})[OUTPUT]
    return float(np.abs(found - exact).max())


def _classify(model: Path, network: Any, processor: Any, picture: Path) -> tuple[int, str, float]:
    """The most probable class of a picture, prepared by the model's own processor."""
    import numpy as np
    from PIL import Image

    from tilewright.errors import DataError
    from tilewright.stages import float_runner

    try:
        image = Image.open(picture).convert("RGB")
    except OSError as error:
        raise DataError(f"{picture} is no readable picture ({error})", code="TW-1203") from None
    pixels = np.asarray(processor(images=image, return_tensors="np")[INPUT], np.float32)
    logits = float_runner(model)({INPUT: pixels})[OUTPUT][0].astype(np.float64)
    shares = np.exp(logits - logits.max())
    best = int(logits.argmax())
    names = getattr(network.config, "id2label", None) or {}
    return best, str(names.get(best, best)), float(shares[best] / shares.sum())


def _preprocessing(processor: Any, size: tuple[int, int]) -> dict[str, Any]:
    """The processor's settings as keys of `[input]`, on the scale 0..255."""
    unit = 1.0
    if getattr(processor, "do_rescale", True):
        unit = float(getattr(processor, "rescale_factor", 1 / 255))
    found: dict[str, Any] = {"kind": "image", "color": "RGB"}
    if getattr(processor, "do_normalize", True):
        found["mean"] = [round(float(m) / unit, 4) for m in processor.image_mean]
        found["std"] = [round(float(s) / unit, 4) for s in processor.image_std]
    else:
        found["mean"], found["std"] = 0.0, round(1 / unit, 4)
    bicubic = int(getattr(processor, "resample", 2) or 2) == 3
    found["interpolation"] = "bicubic" if bicubic else "bilinear"
    crop = bool(getattr(processor, "do_center_crop", False))
    stated = getattr(processor, "size", None) or {}
    shortest = stated.get("shortest_edge")
    if shortest is not None:
        found["resize"] = "crop"
        found["crop_share"] = round(size[0] / float(shortest), 4) if crop else 1.0
    else:
        found["resize"] = "stretch"
    return found
