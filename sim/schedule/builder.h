// Collects the orders of a schedule, a pass at a time, for generators and
// readers. Says nothing about whether the result is a legal schedule: that is
// VerifySchedule (verify.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class ScheduleBuilder {
 public:
  ScheduleBuilder(absl::string_view name, Placement placement, int microbatches,
                  int slices = 1, int directions = 1);

  // Room for `passes` more passes on `rank`; avoids regrowth in generators.
  void Reserve(int rank, int64_t passes);

  void Add(int rank, Pass pass) { orders_[rank].push_back(pass); }
  void Add(int rank, PassKind kind, int microbatch, int chunk = 0,
           int slice = 0, int direction = 0) {
    orders_[rank].push_back(Pass(kind, microbatch, chunk, slice, direction));
  }
  // So many empty time steps in front of an action (StepGap); by action.
  void AddGap(int rank, int64_t action, int64_t steps) {
    if (steps <= 0) return;
    schedule_.gaps.resize(orders_.size());
    schedule_.gaps[rank].push_back({.action = action, .steps = steps});
  }
  // (first & second) as one block.
  void AddJoint(int rank, Pass first, Pass second) {
    orders_[rank].push_back(first.WithJoint(true));
    orders_[rank].push_back(second);
  }

  Schedule Finish() &&;

 private:
  Schedule schedule_;
  std::vector<RankOrder> orders_;
};

}  // namespace pipewright
