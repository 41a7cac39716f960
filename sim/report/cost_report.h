// The origin of estimated pass times: each operation of one device, as rows for
// people and programs.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/analytic.h"
#include "sim/cost/block_prices.h"
#include "sim/cost/pass_costs.h"
#include "sim/model/stages.h"

namespace pipewright {

class Json;

// One pass of one operation of a block, for one slice of a microbatch on one
// device.
struct OpCost {
  std::string block;  // "layer"
  double blocks = 1;  // how many the model has; of a spread one the parts
  std::string op;     // "qkv"
  std::string pass;   // "F", "B", "W"
  double flops = 0;
  double bytes = 0;         // to and from HBM
  double seconds = 0;       // computing
  double comm_seconds = 0;  // and not hidden by it
  // Exchanging beside passes of another microbatch; what the host does.
  double beside_seconds = 0;
  double launches = 0;
  double host_seconds = 0;
  // Where `seconds` is from and half of its 90 % interval, as a part; 0: not
  // known (sim/cost/op_time.h).
  std::string how;
  double error = 0;
  // Share of all F, B and W of the model's blocks; nothing recomputed.
  double share = 0;
};

struct CostReport {
  DeviceSpec device;
  std::vector<StageCosts> stages;  // for one microbatch
  double optimizer_s = 0;
  std::vector<OpCost> ops;
};

CostReport ReportCosts(const BlockPrices& prices, const StageLayout& layout,
                       const PassCosts& costs);

// The value of the key "costs".
Json CostsToJson(const CostReport& report);

}  // namespace pipewright
