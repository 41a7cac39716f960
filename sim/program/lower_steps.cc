// What ranks receive in the time steps of a schedule (WaitRule::kStepped).
#include <algorithm>
#include <tuple>
#include <vector>

#include "sim/base/status.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"
#include "sim/program/time_steps.h"

namespace pipewright {

absl::Status Lowering::AddTimeSteps() {
  PW_ASSIGN_OR_RETURN(const auto steps, TimeStepsOf(program_));
  for (int rank = 0; rank < program_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    std::vector<StepReceive>& receives = target.step_receives;
    const std::vector<Action>& own = steps[rank].actions;
    for (const RankSteps::Input& input : steps[rank].inputs) {
      const Pass pass = order(rank)[input.position];
      StepReceive receive = {.channel = target.lanes[pass.lane()].input,
                             .pass = pass};
      const auto next = std::partition_point(
          own.begin(), own.end(),
          [&](const Action& each) { return each.step <= input.step; });
      const int64_t last = next == own.begin() ? -1 : std::prev(next)->step;
      if (last == input.step) {
        receive.position = std::prev(next)->end;
      } else {
        receive.position = next->begin;
        receive.empty = input.step - last;
      }
      receives.push_back(receive);
    }
    std::stable_sort(receives.begin(), receives.end(),
                     [](const StepReceive& one, const StepReceive& other) {
                       return std::tie(one.position, one.empty) <
                              std::tie(other.position, other.empty);
                     });
  }
  return absl::OkStatus();
}

}  // namespace pipewright
