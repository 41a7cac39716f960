// How far off an estimated step may be: from the spread of the kernels that it
// is made of and of the campaigns that measured them. No training run went into
// it, so it knows nothing of what estimates leave out.
#pragma once

#include <string>

#include "sim/cost/analytic.h"
#include "sim/cost/block_prices.h"
#include "sim/model/stages.h"

namespace pipewright {

struct RatioInterval {
  double low = 1;
  double high = 1;
  // What nobody knows and is therefore in it: "not known: how fast the host
  // launches"; empty: nothing.
  std::string note;
  // "no step was measured of experts in nvfp4"; empty: some were.
  std::string unmeasured;
};

// The same of the energy of a FLOP.
RatioInterval EnergyError(const DeviceSpec& device, Precision precision);

// The 90 % interval of a step over its estimate. Errors of one kernel are the
// same in all layers; those of different kernels are independent. Common to all
// kernels that they concern are the assumptions: what another campaign would
// change, the law of grouped products, casts, collectives, energies that were
// not measured; of each the ends are priced. Some go one way only, so the
// interval is not even.
RatioInterval EstimateError(const BlockPrices& prices,
                            const StageLayout& layout);
// The same of prices that nobody shares.
RatioInterval EstimateError(const ModelSpec& model,
                            const TrainingSpec& training,
                            const AnalyticOptions& options,
                            const StageLayout& layout);

}  // namespace pipewright
