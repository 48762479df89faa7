"""Canonical operator forms: per operator, the function that brings its older forms to opset 21.

A form function takes a Site and returns the values that replace the node's outputs, or None when
the node stays (it may then have had attributes made explicit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from tilewright.importer.forms import arithmetic, axes, convolution, einsum, resampling, sequences
from tilewright.importer.forms.site import Site

Form = Callable[[Site], Sequence[ir.Value] | None]

_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

FORMS: dict[str, Form] = {
    "AveragePool": convolution.average_pool,
    "BatchNormalization": arithmetic.batch_normalization,
    "CastLike": arithmetic.cast_like,
    "Celu": arithmetic.float_defaults,
    "Clip": axes.clip,
    "Concat": axes.axis_attribute,
    "Conv": convolution.conv,
    "ConvTranspose": convolution.conv_transpose,
    "DFT": arithmetic.dft,
    "DepthToSpace": arithmetic.depth_to_space,
    "Dropout": arithmetic.dropout,
    "Einsum": einsum.einsum,
    "Elu": arithmetic.float_defaults,
    "Flatten": axes.flatten,
    "Gather": axes.axis_attribute,
    "GatherElements": axes.axis_attribute,
    "GridSample": arithmetic.grid_sample,
    "GroupNormalization": arithmetic.group_normalization,
    "HardSigmoid": arithmetic.float_defaults,
    "InstanceNormalization": arithmetic.float_defaults,
    "LayerNormalization": arithmetic.float_defaults,
    "LeakyRelu": arithmetic.float_defaults,
    "LogSoftmax": arithmetic.softmax,
    "Max": arithmetic.extremum,
    "MaxPool": convolution.max_pool,
    "Min": arithmetic.extremum,
    "Pad": axes.pad,
    "Reshape": axes.reshape,
    "Resize": resampling.resize,
    "Scatter": arithmetic.scatter,
    "ScatterElements": axes.axis_attribute,
    "Selu": arithmetic.float_defaults,
    "SequenceAt": sequences.sequence_at,
    "Slice": axes.slice_,
    "Softmax": arithmetic.softmax,
    "SpaceToDepth": arithmetic.space_to_depth,
    "Split": axes.split,
    "Squeeze": axes.squeeze,
    "Sum": arithmetic.sum_,
    "Swish": arithmetic.swish,
    "ThresholdedRelu": arithmetic.float_defaults,
    "TopK": axes.top_k,
    "Transpose": axes.transpose,
    "Unsqueeze": axes.unsqueeze,
    "Upsample": resampling.upsample,
    **dict.fromkeys(_REDUCTIONS, axes.reduce),
}
