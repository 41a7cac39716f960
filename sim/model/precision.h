// What each precision of linear layers means for bytes and exchanges. The casts
// themselves and their times are sim/cost/cast_time.h's.
#pragma once

#include "sim/model/training.h"

namespace pipewright {

// As strategy.precision has it.
const char* PrecisionName(Precision precision);

// Operands of linear layers have 8 or 4 bit.
bool IsNarrow(Precision precision);
// 8 bit, whatever the scales.
bool IsFp8(Precision precision);

// Bytes of an operand of a linear layer, its scales included.
double OperandBytes(Precision precision);

// Bytes of a linear layer's weight as passes use it, both ways round unless
// products read it either way (Transformer Engine: a second copy is the
// transposed one, or the one whose scales lie along the other dimension).
double NarrowWeightBytes(const TrainingSpec& training);
// Bytes of such a weight in ZeRO's all-gather if there is no copy of it in 16
// bit (TrainingSpec::narrow_weights). mxfp8 is gathered in 16 bit, into the
// buffer of gradients, and cast then (Megatron-LM,
// reuse_grad_buf_for_mxfp8_param_ag).
double GatheredWeightBytes(const TrainingSpec& training);

// Scales lie along the inner dimension of a product, so W needs a copy of its
// operands that is cast along the other one.
bool CastsBothWays(Precision precision);

// Bytes of a value that tensor parallelism gathers in front of a product:
// Transformer Engine casts first and gathers what it has cast
// (transformer_engine/pytorch/distributed.py, gather_along_first_dim), along
// both dimensions where W needs both (`for_weight`).
double GatheredBytes(Precision precision, bool for_weight);

}  // namespace pipewright
