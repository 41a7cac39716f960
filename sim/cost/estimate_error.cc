#include "sim/cost/estimate_error.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "sim/cost/block_time.h"
#include "sim/cost/clock.h"

namespace pipewright {
namespace {

// Each is half of a 90 % interval, as a part of the time.
//
// Kernels of the curves: all rows of `reproduce published-kernels` are within
// 10 %. One curve has all products of a kind, which so err together.
constexpr double kCurveError = 0.10;
// Collectives: nine of ten points of one collective, size and device differ by
// less between versions of NCCL (H100, H200, B200; calibrate/silicon).
constexpr double kCollectiveError = 0.12;
// Common to all products of a campaign: the median ratio of two campaigns is
// 0.91 to 0.99, so they differ by 5 % in the middle; of one more against the
// mean of two: 1.645 * 0.05 / sqrt(2) * sqrt(1.5).
constexpr double kCampaignError = 0.07;
// The law of the clock where it is carried to another device or type: the
// energy that was carried from B200 to H100 made lasting products 12 % too slow
// (0.759 of the rate, measured 0.847; experiments/h100_load). Where it was
// measured: the largest median of a layout on B200, and the worst mixture on
// the H100 (2.7 %).
constexpr double kTransferredClock = 0.12;
constexpr double kFittedClock = 0.028;

// The host: te.Linear in bf16 takes 99.66 us on one GB200 and 59.19 us a year
// later on another (host_time.cc), so either is 30 % from the mean of both.
constexpr double kHostError = 0.30;

// Blocks that are alike: one of them, and how many.
struct Alike {
  int64_t layer = 0;
  double times = 0;
};

struct Part {
  double seconds = 0;
  double error = 0;
  bool is_transferred = false;
};

}  // namespace

RatioInterval EstimateError(const ModelSpec& model,
                            const TrainingSpec& training,
                            const AnalyticOptions& options,
                            const StageLayout& layout) {
  // Blocks of a kind, by the class of their layers.
  std::map<std::pair<BlockKind, int64_t>, Alike> blocks;
  for (const std::vector<StageBlock>& stage : layout.stages) {
    for (const StageBlock& block : stage) {
      const int64_t alike = model.layers_differ() ? 1 : block.count;
      for (int64_t at = 0; at < block.count; at += alike) {
        const int64_t layer = block.first_layer + at;
        Alike& same = blocks[{block.kind, model.ClassOf(layer)}];
        same.layer = layer;
        same.times += static_cast<double>(alike) * block.part;
      }
    }
  }
  std::map<std::pair<std::string, int>, Part> kernels;
  double collectives_s = 0;
  double host_s = 0;
  for (const auto& [key, same] : blocks) {
    const std::vector<ModelOp> ops =
        BlockOps(model, training, key.first, same.layer);
    const std::vector<OpTime> times =
        BlockTimes(model, training, options, key.first, same.layer);
    double device[kNumOpPasses] = {0, 0, 0};
    double host[kNumOpPasses] = {0, 0, 0};
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      host[pass] =
          HostSeconds(training, options, ops, times, static_cast<OpPass>(pass));
      for (const OpTime& op : times) {
        device[pass] += op.seconds[pass] + op.comm_seconds[pass];
      }
    }
    // Where the host is the longer, only it counts.
    const bool by_host[] = {host[0] > device[0],
                            host[1] + host[2] > device[1] + device[2],
                            host[1] + host[2] > device[1] + device[2]};
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      if (by_host[pass]) {
        host_s += same.times * host[pass];
        continue;
      }
      for (const OpTime& op : times) {
        collectives_s += same.times * op.comm_seconds[pass];
        if (op.seconds[pass] <= 0) continue;
        Part& part = kernels[{op.name, pass}];
        part.seconds += same.times * op.seconds[pass];
        part.error = op.error[pass];
        part.is_transferred =
            absl::StrContains(op.how[pass], "clock transferred");
      }
    }
  }
  double all_s = collectives_s + host_s;
  double measured_s = 0;
  double transferred_s = 0;
  double curves_s = 0;
  double square = std::pow(kCollectiveError * collectives_s, 2) +
                  std::pow(kHostError * host_s, 2);
  for (const auto& [name, part] : kernels) {
    all_s += part.seconds;
    if (part.error > 0) {
      square += std::pow(part.error * part.seconds, 2);
    } else {
      curves_s += part.seconds;
    }
    (part.is_transferred ? transferred_s : measured_s) += part.seconds;
  }
  if (all_s <= 0) return {};
  square += std::pow(kCurveError * curves_s, 2);
  // The curves alone know of no clock, whatever the options say.
  double clock = kTransferredClock;
  if (options.silicon != nullptr && !options.sustained) clock = 0;
  if (options.silicon != nullptr && options.sustained) {
    clock =
        (kTransferredClock * transferred_s + kFittedClock * measured_s) / all_s;
  }
  const double half =
      std::hypot(std::sqrt(square) / all_s, kCampaignError, clock);
  return {std::exp(-half), std::exp(half)};
}

}  // namespace pipewright
