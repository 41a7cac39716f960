// What of the exchanges inside a pass the computation beside them does not hide.
#pragma once

#include "sim/cost/analytic.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// A product of `product_s` in `pieces`, each of which needs (or makes) one piece
// of an exchange: the first piece is at hand (or the last one stays), and each
// other one takes `hop_s` from a neighbour while the piece before it is
// multiplied. What both take beyond `product_s`.
double ExposedInPieces(double product_s, double hop_s, int pieces);

// Adds the exchanges of `op` to `time`, which has the seconds of computing:
// comm_seconds what stays outside of it, hidden_seconds what of it W hides.
void AddExposed(const AnalyticOptions& options, const TrainingSpec& training,
                const ModelOp& op, OpTime* time);

}  // namespace pipewright
