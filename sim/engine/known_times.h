// What runs on engine fast have in common that differ in factors on the times
// of passes and in the classes of their replicas alone: what operations of a
// replica take when nothing else uses the network.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"
#include "sim/engine/isolated_times.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Classes of one schedule must have equal lanes, operations and network. Safe
// for several threads.
class KnownTimes {
 public:
  // Returns the times of a replica whose class runs `schedule`, as `make` works
  // them out; the number of the class is the first asker's.
  template <typename Make>
  std::shared_ptr<const IsolatedTimes> Get(
      const std::shared_ptr<const Schedule>& schedule, int replica,
      const Make& make) {
    const Key key = {schedule, replica};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = times_.find(key);
      if (known != times_.end()) return known->second;
    }
    auto made = std::make_shared<const IsolatedTimes>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    return times_.emplace(key, std::move(made)).first->second;
  }

 private:
  // Kept alive, so that no other schedule takes its place.
  using Key = std::pair<std::shared_ptr<const Schedule>, int>;

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const IsolatedTimes>> times_;
};

// `known` may be null.
ReplicaRows SortReplicas(const Program& program, KnownTimes* known);

// RunFast for one of many runs.
absl::StatusOr<RunSummary> RunFastKnowing(const Program& program,
                                          const EngineOptions& options,
                                          KnownTimes* known);

}  // namespace pipewright
