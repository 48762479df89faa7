"""What other tools make of the same float model and the same calibration samples.

`ort-s8`, `ort-u8`: onnxruntime's `quant_pre_process`, then `quantize_static`: QDQ, MinMax, signed
per-channel weights, s8 or u8 activations; `ort-s8-matmul`: matrix products and convolutions only.
`nncf`: `nncf.quantize` with its defaults (MIXED preset, fast bias correction); `nncf-minmax`: the
same with min-max ranges; `nncf-transformer`: with its rules for transformers.  NNCF gets a virtual
environment of its own, since it pins other libraries than ours.  As a program, this module
quantizes one file:

    python benchmarks/peers.py ort-u8 float.onnx samples.npz quantized.onnx
    python benchmarks/peers.py ort-u8 float.onnx pictures/ quantized.onnx
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import version_converter

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
"""Input name -> array."""

ORT_PEERS = ("ort-s8", "ort-u8")
NNCF_PEERS = ("nncf", "nncf-minmax")
TRANSFORMER_PEERS = ("ort-s8", "ort-s8-matmul", "nncf-transformer")
PEERS = tuple(dict.fromkeys((*ORT_PEERS, *NNCF_PEERS, *TRANSFORMER_PEERS)))

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")

NNCF_REQUIREMENTS = ("nncf==3.4.0", "onnx<2", "onnxruntime<2")
PER_CHANNEL_OPSET = 13


class Reader:
    """Calibration samples as `quantize_static` reads them."""

    def __init__(self, samples: Iterable[Feeds]) -> None:
        self.samples = list(samples)
        self._left: Iterator[Feeds] = iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def rewind(self) -> None:
        """Start again."""
        self._left = iter(self.samples)

    def get_next(self) -> Feeds | None:
        """The next sample, or None behind the last."""
        return next(self._left, None)


def static(model: onnx.ModelProto, shapes: Sequence[Sequence[int]]) -> onnx.ModelProto:
    """The model with static inputs, no initializers among them, and an opset that has per-channel
    quantization: what every tool here reads."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {t.name for t in copy.graph.initializer}
    inputs = [i for i in copy.graph.input if i.name not in constants]
    del copy.graph.input[:], copy.graph.value_info[:]
    copy.ir_version = max(copy.ir_version, 8)
    for value, shape in zip(inputs, shapes, strict=True):
        for dimension, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            dimension.dim_value = size
    copy.graph.input.extend(inputs)
    if next(o.version for o in copy.opset_import if o.domain in ("", "ai.onnx")) < 13:
        copy = version_converter.convert_version(copy, PER_CHANNEL_OPSET)
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(copy)


def quantize(peer: str, source: Path, samples: Iterable[Feeds], target: Path) -> None:
    """Quantize the static model `source` with one of PEERS; `target` is a QDQ file."""
    if peer.startswith("ort-"):
        quantize_static(peer, source, Reader(samples), target)
    else:
        _in_own_environment(peer, source, samples, target)


def quantize_static(peer: str, source: Path, feeds: Reader, target: Path) -> None:
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
            activation_type=QuantType.QUInt8 if peer == "ort-u8" else QuantType.QInt8,
            op_types_to_quantize=list(PRODUCTS) if peer == "ort-s8-matmul" else None,
            calibrate_method=CalibrationMethod.MinMax,
        )


def _in_own_environment(peer: str, source: Path, samples: Iterable[Feeds], target: Path) -> None:
    python = nncf_python()
    given = list(samples)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples.npz"
        stacked = {name: np.stack([s[name] for s in given]) for name in given[0]}
        np.savez(data, allow_pickle=False, **stacked)
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


def _quantize_nncf(peer: str, source: Path, feeds: Reader, target: Path) -> None:
    nncf = importlib.import_module("nncf")
    estimators = importlib.import_module("nncf.quantization.range_estimator")
    advanced = importlib.import_module("nncf.quantization.advanced_parameters")
    own = advanced.AdvancedQuantizationParameters(
        activations_range_estimator_params=estimators.RangeEstimatorParametersSet.MINMAX
    )
    quantized = nncf.quantize(
        onnx.load(source),
        nncf.Dataset(feeds.samples),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if peer == "nncf-transformer" else None,
        advanced_parameters=own if peer == "nncf-minmax" else None,
    )
    onnx.save(quantized, target)


def _read(samples: Path, name: str) -> list[Feeds]:
    """The samples of an .npz, or the pictures of a folder for the input `name`."""
    if samples.is_dir():
        from pictures import planes
        from PIL import Image

        files = sorted(samples.iterdir())
        return [{name: planes(Image.open(path), 127, 128)} for path in files]
    with np.load(samples) as stored:
        columns = dict(stored)
    count = len(next(iter(columns.values())))
    return [{key: column[i] for key, column in columns.items()} for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("source", type=Path, help="float ONNX with a static input")
    parser.add_argument(
        "samples",
        type=Path,
        help=".npz, an array of samples for each input, or a folder of pictures (x - 127) / 128",
    )
    parser.add_argument("target", type=Path, help="QDQ ONNX to write")
    args = parser.parse_args()
    name = onnx.load(args.source).graph.input[0].name
    feeds = Reader(_read(args.samples, name))
    if args.peer.startswith("ort-"):
        quantize_static(args.peer, args.source, feeds, args.target)
    else:
        _quantize_nncf(args.peer, args.source, feeds, args.target)


if __name__ == "__main__":
    main()
