#include "tests/support/random_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright {

absl::StatusOr<Schedule> AnySchedule(size_t row, int pp, int microbatches) {
  const std::vector<const ScheduleInfo*>& all = AllSchedules();
  const ScheduleInfo& info = *all[row % all.size()];
  ScheduleParams params;
  params.pp = pp;
  params.vpp = info.default_vpp;
  params.microbatches = microbatches;
  if (info.slice_factor) params.slices = 2;
  return BuildSchedule(info.name, params);
}

size_t AnyRow(Random& random) {
  const auto row = static_cast<size_t>(random.Int(0, 1000));
  if (!random.Chance(17)) return row;
  const std::vector<const ScheduleInfo*>& all = AllSchedules();
  const char* const name = row % 2 == 0 ? "pipedream-2bw" : "pipeoptim";
  return std::find_if(
             all.begin(), all.end(),
             [name](const ScheduleInfo* info) { return info->name == name; }) -
         all.begin();
}

Schedule WithCopies(const Schedule& schedule, Random& random) {
  ScheduleBuilder out(schedule.name, schedule.placement, schedule.microbatches,
                      schedule.slices, schedule.directions);
  const int every = random.Int(2, 4);
  // FREE stands right behind its O or in front of its L.
  const bool frees_early = random.Chance(50);
  const bool frees = random.Chance(67);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    const auto add_copy = [&](PassKind kind, Pass pass) {
      if (pass.microbatch() % every != 0) return;
      out.Add(rank, Pass(kind, pass.microbatch(), pass.chunk(), pass.slice(),
                         pass.direction()));
    };
    for (size_t index = 0; index < order.size();) {
      // Nothing stands inside a block.
      const size_t end = index + (order[index].joint_with_next() ? 2 : 1);
      for (size_t part = index; part < end; ++part) {
        if (IsBackward(order[part].kind())) {
          if (frees && !frees_early) add_copy(PassKind::kFree, order[part]);
          add_copy(PassKind::kLoad, order[part]);
        }
      }
      for (size_t part = index; part < end; ++part) out.Add(rank, order[part]);
      for (size_t part = index; part < end; ++part) {
        if (order[part].kind() == PassKind::kForward) {
          add_copy(PassKind::kOffload, order[part]);
          if (frees && frees_early) add_copy(PassKind::kFree, order[part]);
        }
      }
      index = end;
    }
  }
  return std::move(out).Finish();
}

Schedule WithJointPairs(const Schedule& schedule, Random& random) {
  ScheduleBuilder out(schedule.name, schedule.placement, schedule.microbatches,
                      schedule.slices, schedule.directions);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    for (size_t index = 0; index < order.size(); ++index) {
      const bool pair =
          index + 1 < order.size() && IsBackward(order[index].kind()) &&
          order[index + 1].kind() == PassKind::kForward &&
          !order[index + 1].joint_with_next() && random.Chance(30);
      if (pair) {
        out.AddJoint(rank, order[index], order[index + 1]);
        ++index;
      } else if (order[index].joint_with_next()) {
        out.Add(rank, order[index++]);
        out.Add(rank, order[index]);
      } else {
        out.Add(rank, order[index]);
      }
    }
  }
  return std::move(out).Finish();
}

}  // namespace pipewright
