// Slow and obvious counterparts of the schedule library, for tests to compare
// with. Times are whole slots; sets instead of bit maps.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace pipewright::testing {

struct SlotCosts {
  int forward = 1;
  int backward_input = 1;
  int backward_weight = 1;
};

// First slot of every pass, [rank][position], each as early as possible;
// nullopt where the orders cannot run to their end. Looks at F, B, W, BW and
// joint pairs only.
std::optional<std::vector<std::vector<int>>> NaiveReplay(
    const Schedule& schedule, const SlotCosts& costs = {});

// A row a rank, a column a slot: what the rank runs, '.' while it waits.
std::string SlotGrid(const Schedule& schedule);

// Any legal order for any sizes: every microbatch through all stages, one
// after the other. `split` makes B and W of every backward.
Schedule PlainSchedule(Placement placement, int microbatches, int slices = 1,
                       int replicas = 1, bool split = false);

}  // namespace pipewright::testing
