// What ranks receive in the time steps of a schedule (WaitRule::kStepped).
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/base/status.h"
#include "sim/program/compute_stream.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"
#include "sim/program/time_steps.h"

namespace pipewright {

absl::Status Lowering::AddTimeSteps() {
  PW_ASSIGN_OR_RETURN(const auto steps, TimeStepsOf(program_));
  // [channel] key -> its step, counted from 0.
  std::vector<absl::flat_hash_map<uint64_t, int64_t>> made(
      program_.channels.size());
  const auto visit = [&](int rank, auto see) {
    int64_t position = 0;
    for (const Action& action : steps[rank]) {
      for (; position < action.end; ++position) {
        const Pass pass = order(rank)[position];
        if (EntryOf(pass.kind()) == Entry::kBlock) {
          see(pass, program_.ranks[rank].lanes[pass.lane()], action);
        }
      }
    }
  };
  for (int rank = 0; rank < program_.pp(); ++rank) {
    visit(rank, [&](Pass pass, const Lane& lane, const Action& action) {
      if (lane.output >= 0) made[lane.output][pass.key()] = action.step;
    });
  }
  for (int rank = 0; rank < program_.pp(); ++rank) {
    std::vector<StepReceive>& receives = program_.ranks[rank].step_receives;
    const std::vector<Action>& own = steps[rank];
    visit(rank, [&](Pass pass, const Lane& lane, const Action&) {
      if (lane.input < 0) return;
      const int64_t step = made[lane.input].at(pass.key());
      const auto next = std::upper_bound(
          own.begin(), own.end(), step,
          [](int64_t limit, const Action& each) { return limit < each.step; });
      StepReceive receive = {.channel = lane.input, .pass = pass};
      const bool first = next == own.begin();
      if (!first && std::prev(next)->step == step) {
        receive.position = std::prev(next)->end;
      } else {
        receive.position = next->begin;
        receive.empty = step - (first ? -1 : std::prev(next)->step);
      }
      receives.push_back(receive);
    });
    std::stable_sort(receives.begin(), receives.end(),
                     [](const StepReceive& one, const StepReceive& other) {
                       return std::tie(one.position, one.empty) <
                              std::tie(other.position, other.empty);
                     });
  }
  return absl::OkStatus();
}

}  // namespace pipewright
