// What ranks send and receive in the time steps of a schedule
// (WaitRule::kStepped).
#include <algorithm>
#include <tuple>
#include <vector>

#include "sim/base/status.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"
#include "sim/program/time_steps.h"
#include "sim/schedule/transfers.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {

bool Lowering::WalksSteps() const {
  if (options_.wait_rule != WaitRule::kBatched) {
    return options_.wait_rule == WaitRule::kStepped;
  }
  return schedule_.vpp() > 1 || schedule_.directions > 1 ||
         !CheckProgress(schedule_, BlockingSteps(schedule_),
                        Semantics::kBatched)
              .ok();
}

absl::Status Lowering::AddTimeSteps() {
  const bool batched = options_.wait_rule == WaitRule::kBatched;
  const auto steps = TimeStepsOf(program_, batched);
  // Passes that wait for each other do so in batches, too.
  if (batched && !steps.ok()) return absl::OkStatus();
  PW_RETURN_IF_ERROR(steps.status());
  program_.wait_rule = WaitRule::kStepped;
  program_.batched_steps = batched;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    std::vector<StepPost>& posts = target.step_posts;
    const std::vector<Action>& own = (*steps)[rank].actions;
    for (const Action& action : own) {
      for (int64_t at = action.begin; at < action.end; ++at) {
        const Pass pass = order(rank)[at];
        const int32_t output = target.lanes[pass.lane()].output;
        if (output < 0) continue;
        posts.push_back(
            {.position = action.end,
             .post = {.channel = output, .send = true, .pass = pass}});
      }
    }
    for (const RankSteps::Input& input : (*steps)[rank].inputs) {
      const Pass pass = order(rank)[input.position];
      StepPost receive = {
          .post = {.channel = target.lanes[pass.lane()].input, .pass = pass}};
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
      posts.push_back(receive);
    }
    // Both sides agree on what comes first between them: NCCL pairs messages by
    // their order.
    const auto key = [](const StepPost& each) {
      return std::make_tuple(each.position, each.empty, !each.post.send,
                             each.post.channel);
    };
    std::stable_sort(posts.begin(), posts.end(),
                     [&](const StepPost& one, const StepPost& other) {
                       return key(one) < key(other);
                     });
  }
  return absl::OkStatus();
}

}  // namespace pipewright
