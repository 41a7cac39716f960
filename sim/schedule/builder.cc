#include "sim/schedule/builder.h"

#include <utility>

namespace pipewright {

ScheduleBuilder::ScheduleBuilder(absl::string_view name, Placement placement,
                                 int microbatches, int slices, int directions)
    : orders_(placement.pp()) {
  schedule_.name = std::string(name);
  schedule_.placement = std::move(placement);
  schedule_.microbatches = microbatches;
  schedule_.slices = slices;
  schedule_.directions = directions;
}

void ScheduleBuilder::Reserve(int rank, int64_t passes) {
  orders_[rank].reserve(orders_[rank].size() + static_cast<size_t>(passes));
}

Schedule ScheduleBuilder::Finish() && {
  schedule_.orders.reserve(orders_.size());
  for (RankOrder& rank_order : orders_) {
    schedule_.orders.push_back(
        std::make_shared<const RankOrder>(std::move(rank_order)));
  }
  return std::move(schedule_);
}

}  // namespace pipewright
