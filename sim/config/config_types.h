// What sim/proto/config.proto names of C++: enums and limits of fields, and the
// tables that have a choice's names.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/cost/framework_kernels.h"
#include "sim/model/execution.h"
#include "sim/model/lengths.h"
#include "sim/model/packer.h"
#include "sim/model/training.h"
#include "sim/program/lower.h"
#include "sim/program/optimizer_plan.h"
#include "sim/schedule/offload_mode.h"
#include "sim/schedule/pass.h"
#include "sim/topology/registry.h"

namespace pipewright {

// Whose defaults the strategy has (framework.h).
enum class Framework : uint8_t { kMegatron, kTorchtitan, kDeepSpeed };

// Precision in which a layer is gathered.
enum class GatherType : uint8_t { kBf16, kFp32 };
// kApart: every pull is a flow of its own.
enum class PullFlows : uint8_t { kTogether, kApart };

// How layers are dealt out to stages if no list or layout string says so.
enum class LayerSplit : uint8_t { kEven, kBalanced };

// Does attention keep the scores?
enum class Attention : uint8_t { kFlash, kUnfused };

// Clocks under a lasting load, or as in milliseconds.
enum class ClockRate : uint8_t { kSustained, kBurst };

// Ends of ranges in config.proto.
namespace limits {

// Far beyond any model, and small enough that the product of two sizes, times
// a few, is below 2^63. Sums of bytes are checked apart (CheckBytes).
inline constexpr int64_t kMostLayers = 100'000;
inline constexpr int64_t kMostWidth = int64_t{1} << 26;
inline constexpr int64_t kMostHeads = int64_t{1} << 20;
inline constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

inline constexpr int kMostInt = std::numeric_limits<int>::max();
inline constexpr int64_t kMostSeed = std::numeric_limits<int64_t>::max();
// What prices and limits count stays far from a double's end.
inline constexpr double kMostNumber = 1e12;
// Three passes each are as many as a schedule may have.
inline constexpr int kMostMicrobatches = kMostInt / 3;
// As many ranks as BuildSchedule takes, as many replicas as BuildCluster takes
// devices.
inline constexpr int kMostRanks = 1 << 16;
inline constexpr int kMostReplicas = 1 << 20;
// More would only repeat the period; the limit keeps a slip of the finger from
// running for days.
inline constexpr int kMostIterations = 10000;
// Bytes of host memory for each parameter.
inline constexpr double kMostHostBytes = 1024;
// More than any node has devices.
inline constexpr double kMostLoad = 1024;
// Seconds of one kernel, far beyond what any host takes.
inline constexpr double kMostLaunchSeconds = 1;
inline constexpr int kMostFailureDays = 1'000'000;

}  // namespace limits

// The values of a field that is a choice among names.
struct ChoiceRow {
  const char* name;
  int value;
  bool available = true;  // false: refused as not in this version
};

// The name of an available value.
template <typename Enum>
const char* ChoiceName(const std::vector<ChoiceRow>& rows, Enum value) {
  for (const ChoiceRow& row : rows) {
    if (row.available && row.value == static_cast<int>(value)) return row.name;
  }
  return "";
}

// Tables of config.proto's "choice: ... of ...".
const std::vector<ChoiceRow>& DataParallelChoices();
const std::vector<ChoiceRow>& OptimizerPlacementChoices();
const std::vector<ChoiceRow>& PackerChoices();
// Values of strategy.graph_parts, OpPart.
const std::vector<ChoiceRow>& GraphPartChoices();
// Values of strategy.recompute_modules, RecomputeModule.
const std::vector<ChoiceRow>& RecomputeModuleChoices();

}  // namespace pipewright
