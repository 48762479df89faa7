"""The rewrites of the importer, one per file, each `run(model) -> PassResult`.

PREPARE and FINISH run once. The rounds repeat until nothing changes. Within FLOAT_ROUND the order
matters where a pattern would be eaten by a later pass: the hard activations before the affine
folds, which would take their `x + 3` into a convolution's bias.
"""

from __future__ import annotations

from tilewright.importer.passes import (
    affine_after,
    affine_before,
    affine_chain,
    arithmetic,
    attention_scale,
    clamp,
    constants,
    dead,
    deduplicate,
    duplicates,
    expand,
    gemm,
    global_pool,
    group_norm,
    hard_sigmoid,
    identity,
    l2_norm,
    layer_norm,
    layout,
    movement_late,
    named_function,
    names,
    pad,
    recurrent,
    rms_norm,
    slices,
    softmax,
    specialise,
    split,
    split_early,
    tokens,
    transpose_order,
    unfold,
)

PREPARE = (constants.run, specialise.run, recurrent.run)

QUANTIZED_ROUND = (identity.run, layout.run, dead.run)

FLOAT_ROUND = (
    identity.run,
    layout.run,
    duplicates.run,
    slices.run,
    unfold.run,
    split.run,
    expand.run,
    arithmetic.run,
    clamp.run,
    hard_sigmoid.run,
    named_function.run,
    layer_norm.run,
    rms_norm.run,
    l2_norm.run,
    group_norm.run,
    softmax.run,
    affine_after.run,
    attention_scale.run,
    global_pool.run,
    tokens.run,
    gemm.run,
    movement_late.run,
    transpose_order.run,
    split_early.run,
    pad.run,
    affine_chain.run,
    affine_before.run,
    dead.run,
)

FINISH = (deduplicate.run, names.run)
