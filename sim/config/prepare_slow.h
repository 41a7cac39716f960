// Devices and links of a run that are slower than they should be, resolved:
// names looked up, laws drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/cost/slow_law.h"
#include "sim/program/slow_devices.h"
#include "sim/topology/cluster.h"
#include "sim/topology/mapping.h"

namespace pipewright {

// Factors of what has a number, by name and by law.
struct SlowFactors {
  std::optional<SlowLaw> law;
  uint64_t seed = 0;
  std::vector<double> named;    // product of all that name it; 1: none
  std::vector<double> factors;  // with the law

  // What the law draws for each depends on `number(index)`.
  void Draw(uint64_t stream, absl::FunctionRef<uint64_t(size_t)> number);
};

struct SlowDevices {
  SlowFactors of;  // [(replica * pp + rank) * devices_per_rank + index]
  int pp = 1;
  int dp = 1;
  int devices_per_rank = 1;
  std::vector<int> number;         // of the device; the law draws by it
  std::vector<std::string> names;  // on a system, [number]; else empty

  // A rank is as slow as the slowest of its devices: they meet in every pass.
  DeviceFactors OfRanks() const;
  // "node0/gpu3", "replica2/rank3".
  std::string NameOf(int64_t index) const;
};

struct SlowLinks {
  SlowFactors of;  // [link]
  std::shared_ptr<const Cluster> healthy;

  std::shared_ptr<const Cluster> Slowed() const;
};

// Nothing where no device is slow. `cluster` and `mapping` may be null. Error:
// kInvalidArgument for a name of nobody, one that comes twice, a factor or law
// that is not legal.
absl::StatusOr<std::optional<SlowDevices>> PrepareSlowDevices(
    const RunConfig& config, int pp, int dp, int devices_per_rank,
    const Cluster* cluster, const RankMapping* mapping);

// The same of links.
absl::StatusOr<std::optional<SlowLinks>> PrepareSlowLinks(
    const RunConfig& config, std::shared_ptr<const Cluster> cluster);

// Draws anew with seeds `more` further on, where there is a law.
void Redraw(uint64_t more, SlowDevices* devices);
void Redraw(uint64_t more, SlowLinks* links);

}  // namespace pipewright
