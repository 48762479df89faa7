"""What other tools make of the same float model and the same calibration samples.

`ort-s8`, `ort-u8`: onnxruntime's `quant_pre_process`, then `quantize_static`: QDQ, MinMax, signed
per-channel weights, s8 or u8 activations.  `nncf`: `nncf.quantize` with its defaults (MIXED preset,
fast bias correction); `nncf-minmax`: the same with min-max ranges.  NNCF gets a virtual environment
of its own, since it pins other libraries than ours.  As a program, this module quantizes one file:

    python benchmarks/peers.py ort-u8 float.onnx samples.npy quantized.onnx
    python benchmarks/peers.py ort-u8 float.onnx pictures/ quantized.onnx
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import version_converter

Array = npt.NDArray[Any]

ORT_PEERS = ("ort-s8", "ort-u8")
NNCF_PEERS = ("nncf", "nncf-minmax")
PEERS = (*ORT_PEERS, *NNCF_PEERS)

NNCF_REQUIREMENTS = ("nncf==3.4.0", "onnx<2", "onnxruntime<2")
PER_CHANNEL_OPSET = 13


class Feeds:
    """Calibration samples as `quantize_static` reads them."""

    def __init__(self, name: str, samples: Iterable[Array]) -> None:
        self._name = name
        self._samples = list(samples)
        self._left: Iterator[Array] = iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def rewind(self) -> None:
        """Start again."""
        self._left = iter(self._samples)

    def get_next(self) -> Mapping[str, Array] | None:
        """The next sample, or None behind the last."""
        value = next(self._left, None)
        return None if value is None else {self._name: value}


def static(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model with a static input, no initializers among its inputs, and an opset that has
    per-channel quantization: what every tool here reads."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {t.name for t in copy.graph.initializer}
    inputs = [i for i in copy.graph.input if i.name not in constants]
    del copy.graph.input[:], copy.graph.value_info[:]
    copy.graph.input.extend(inputs)
    copy.ir_version = max(copy.ir_version, 8)
    for dimension, size in zip(inputs[0].type.tensor_type.shape.dim, shape, strict=True):
        dimension.dim_value = size
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    if next(o.version for o in copy.opset_import if o.domain in ("", "ai.onnx")) < 13:
        copy = version_converter.convert_version(copy, PER_CHANNEL_OPSET)
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(copy)


def quantize(peer: str, source: Path, samples: Iterable[Array], target: Path) -> None:
    """Quantize the static model `source` with one of PEERS; `target` is a QDQ file."""
    name = onnx.load(source, load_external_data=False).graph.input[0].name
    if peer in ORT_PEERS:
        quantize_static(source, Feeds(name, samples), target, unsigned=peer == "ort-u8")
    else:
        _in_own_environment(peer, source, samples, target)


def quantize_static(source: Path, feeds: Feeds, target: Path, *, unsigned: bool) -> None:
    """onnxruntime: preparation, then MinMax, per channel."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as quantize_onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        ready = str(Path(folder) / "ready.onnx")
        try:
            quant_pre_process(str(source), ready)
        except Exception:  # noqa: BLE001 - its symbolic shape inference asserts on some models
            quant_pre_process(str(source), ready, skip_symbolic_shape=True)
        quantize_onnx(
            ready,
            str(target),
            feeds,
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


def _in_own_environment(peer: str, source: Path, samples: Iterable[Array], target: Path) -> None:
    python = nncf_python()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples.npy"
        np.save(data, np.stack(list(samples)))
        subprocess.run([python, __file__, peer, source, data, target], check=True)


def nncf_python() -> Path:
    """The interpreter of NNCF's environment, which is made on first use."""
    home = Path(__file__).resolve().parents[1] / "build" / "peers" / "nncf"
    python = home / "bin" / "python"
    done = home / ".complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *NNCF_REQUIREMENTS], check=True)
        done.touch()
    return python


def _quantize_nncf(peer: str, source: Path, feeds: Feeds, target: Path) -> None:
    nncf = importlib.import_module("nncf")
    estimators = importlib.import_module("nncf.quantization.range_estimator")
    advanced = importlib.import_module("nncf.quantization.advanced_parameters")
    own = advanced.AdvancedQuantizationParameters(
        activations_range_estimator_params=estimators.RangeEstimatorParametersSet.MINMAX
    )
    items = [feeds.get_next() for _ in range(len(feeds))]
    quantized = nncf.quantize(
        onnx.load(source),
        nncf.Dataset(items),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(items),
        advanced_parameters=own if peer == "nncf-minmax" else None,
    )
    onnx.save(quantized, target)


def _read(samples: Path) -> Iterable[Array]:
    if samples.is_dir():
        from pictures import planes
        from PIL import Image

        return [planes(Image.open(path), 127, 128) for path in sorted(samples.iterdir())]
    stacked: Array = np.load(samples, mmap_mode="r")
    return list(stacked)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("source", type=Path, help="float ONNX with a static input")
    parser.add_argument(
        "samples",
        type=Path,
        help=".npy, samples along the first axis, or a folder of pictures for (x - 127) / 128",
    )
    parser.add_argument("target", type=Path, help="QDQ ONNX to write")
    args = parser.parse_args()
    name = onnx.load(args.source).graph.input[0].name
    feeds = Feeds(name, _read(args.samples))
    if args.peer in ORT_PEERS:
        quantize_static(args.source, feeds, args.target, unsigned=args.peer == "ort-u8")
    else:
        _quantize_nncf(args.peer, args.source, feeds, args.target)


if __name__ == "__main__":
    main()
