"""ONNX file -> canonical float ONNX (onnx_ir.Model).

    imported = import_model("model.onnx", input_shapes={"image": (1, 3, 224, 224)})
    errors = compare_outputs(imported.original, imported.model, feeds)
    save(imported.model, "optimized.onnx")

The canonical form, on which every later stage relies (`verify` checks what can be checked):

Graph
    - default-domain opset 21; a later one only if an operator of the model does not exist in 21
      and ONNX does not define it by others (Attention and RotaryEmbedding are their definitions).
      Foreign domains pass through untouched. No local functions, no Constant nodes, no If with a
      constant condition.
    - inputs and outputs keep names, order, types and (except for resolved dimensions) shapes; a
      graph input with an initializer (old IR versions) is a constant, not an input.
    - every value has a known dtype and a static shape, except what descends from data-dependent
      operators (NonZero, NonMaxSuppression, loops ...) or from foreign ones.
    - constants are initializers, each content once; only results above 64 MiB stay computed.
    - nodes are in topological order; node and value names are unique and not empty. A tensor that
      survives keeps its name; a node's metadata_props["pkg.tilewright.source"] lists the source
      nodes, comma-joined.
    - nothing is dead. Identity stays only where a graph output would otherwise be a graph input, a
      constant or another output.

Operators
    - Conv, ConvTranspose: kernel_shape, strides, dilations, pads, group (and output_padding)
      stated; no auto_pad, no output_shape. MaxPool, AveragePool alike, with ceil_mode (and
      count_include_pad) stated; AveragePool has dilations only where they are not 1.
    - affine functions per channel (BatchNormalization, Mul, Add by constants) are inside the Conv,
      ConvTranspose, Gemm, MatMul or normalisation beside them where exact, also through Reshape,
      Transpose, Slice and Split; a BatchNormalization that stays has one output and a stated
      epsilon.
    - normalisations are LayerNormalization and RMSNormalization over the last axis (elsewhere
      between Transposes), GroupNormalization, InstanceNormalization, LpNormalization with p = 2;
      the bias of the first is there only where one was given.
    - Gemm: alpha = beta = 1, transA = 0, transB = 1, constant weight [N, K], constant bias [N] or
      none. MatMul by a constant matrix is Gemm when its left side has rank 2; a Gemm of flattened
      tokens is MatMul and Add on the tokens.
    - Clip has both bounds, scalar constants of x's type (the type's lowest/largest number for
      "none"); from 0 up it is Relu; Max and Min with a scalar constant are Clip; chains are merged.
    - Add, Mul, Max, Min have a constant operand second. Sub and Div by a constant are Add and Mul.
    - Gelu, Mish, HardSigmoid, HardSwish are single nodes; SiLU is Sigmoid and Mul. Alpha, beta are
      stated.
    - Squeeze, Unsqueeze, Flatten are Reshape; a Reshape's shape is constant, without 0 and -1.
      Transpose states perm and moves something; adjacent Reshapes and Transposes are merged, and
      both stand behind elementwise operators that alone read them. Of a Reshape and a Transpose,
      one that cuts axes is first and one that joins axes last. Equal nodes are one.
    - Slice has starts, ends, axes, steps as constants, axes >= 0, bounds inside the tensor; Split
      has its lengths, also where slices divided the tensor; a rotation is two Slices and a Concat;
      a Gather of neighbouring constant indices is a Slice. Pad has pads for all axes; ReduceX has
      its axes; TopK, Softmax, Concat, Gather have axis >= 0.
    - an Einsum of one or two operands is Transpose, Reshape, ReduceSum, MatMul, Mul. Queries, keys
      and values of a joint projection are split before they are cut into heads.
    - Softmax and LogSoftmax are single nodes over their axis only; a scalar factor of a product of
      two computed tensors is in the projections before it where it can be. Resize has scales
      (sizes where no float32 scale gives them) and states its modes; Upsample is Resize. Sum is a
      chain of Add; Dropout is gone.
    - a mean over all of axes 2 and 3 of a rank-4 tensor is GlobalAveragePool.

Models that carry QuantizeLinear/DequantizeLinear (`is_quantized`) get the graph rules and operator
forms above, but no folding through, into or across quantizers: DequantizeLinear(initializer) stays
as written.
"""

from __future__ import annotations

from tilewright.importer.compare import OutputError, compare_outputs, output_errors, run_model
from tilewright.importer.cut import cut
from tilewright.importer.edit import SOURCE_KEY, NearMiss, PassResult
from tilewright.importer.graphs import is_quantized
from tilewright.importer.loading import load
from tilewright.importer.pipeline import Imported, PassRecord, import_model
from tilewright.importer.saving import save
from tilewright.importer.shapes import FreeDimension, fix_shapes, free_dimensions
from tilewright.importer.verify import verify

__all__ = [
    "SOURCE_KEY",
    "FreeDimension",
    "Imported",
    "NearMiss",
    "OutputError",
    "PassRecord",
    "PassResult",
    "compare_outputs",
    "cut",
    "fix_shapes",
    "free_dimensions",
    "import_model",
    "is_quantized",
    "load",
    "output_errors",
    "run_model",
    "save",
    "verify",
]
