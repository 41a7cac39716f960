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

// Scales lie along the inner dimension of a product, so W needs a copy of its
// operands that is cast along the other one.
bool CastsBothWays(Precision precision);

// Bytes of a value that tensor parallelism gathers in front of a product:
// Transformer Engine casts first and gathers what it has cast
// (transformer_engine/pytorch/distributed.py, gather_along_first_dim), along
// both dimensions where W needs both (`for_weight`).
double GatheredBytes(Precision precision, bool for_weight);

}  // namespace pipewright
