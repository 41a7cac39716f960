#include "sim/program/time_steps.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "sim/base/status.h"
#include "sim/program/compute_stream.h"
#include "sim/program/program.h"
#include "sim/schedule/transfers.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {
namespace {

class Steps {
 public:
  Steps(const DpClass& own, bool batched)
      : own_(own),
        batched_(batched),
        steps_(own.ranks.size()),
        positions_(own.ranks.size(), 0),
        blocked_(own.ranks.size(), 0),
        apart_(own.ranks.size(), -1),
        gaps_(own.ranks.size(), 0),
        made_(own.channels.size()),
        awaited_(own.channels.size()) {}

  absl::StatusOr<std::vector<RankSteps>> Find() && {
    for (size_t rank = 0; rank < own_.ranks.size(); ++rank) {
      ready_.push_back(rank);
      joins_.push_back(batched_ && own_.schedule->vpp() > 1 &&
                       Alternates(own_.ranks[rank]));
    }
    do {
      while (!ready_.empty()) {
        const size_t rank = ready_.back();
        ready_.pop_back();
        Advance(rank);
      }
    } while (TakePairsApart());
    for (size_t rank = 0; rank < own_.ranks.size(); ++rank) {
      if (positions_[rank] < std::ssize(*own_.ranks[rank].order)) {
        return absl::FailedPreconditionError(
            "time steps: deadlock: passes of the schedule wait for each "
            "other");
      }
    }
    return std::move(steps_);
  }

 private:
  // Some backward stands in front of a forward.
  static bool Alternates(const RankProgram& rank) {
    const RankOrder& order = *rank.order;
    const auto backward = std::find_if(
        order.begin(), order.end(),
        [](Pass pass) { return pass.kind() == PassKind::kBackwardFull; });
    return std::any_of(backward, order.end(), [](Pass pass) {
      return pass.kind() == PassKind::kForward;
    });
  }

  // The first position behind the action at `position`.
  int64_t EndOf(size_t rank, int64_t position) const {
    const RankProgram& program = own_.ranks[rank];
    const RankOrder& order = *program.order;
    const int64_t end = EndOfPass(program, position);
    if (!joins_[rank] || apart_[rank] == end || end == std::ssize(order) ||
        order[end - 1].kind() != PassKind::kForward ||
        (end > 1 && order[end - 2].joint_with_next())) {
      return end;
    }
    const int64_t pair_end = EndOfPass(program, end);
    return order[pair_end - 1].kind() == PassKind::kBackwardFull &&
                   !order[pair_end - 2].joint_with_next()
               ? pair_end
               : end;
  }

  // Ranks that wait for the backward of a pair run its forward alone. False if
  // there are none.
  bool TakePairsApart() {
    for (size_t rank = 0; rank < own_.ranks.size(); ++rank) {
      const int64_t position = positions_[rank];
      if (!joins_[rank] || position == std::ssize(*own_.ranks[rank].order)) {
        continue;
      }
      const int64_t forward_end = EndOfPass(own_.ranks[rank], position);
      if (blocked_[rank] < forward_end) continue;
      apart_[rank] = forward_end;
      ready_.push_back(rank);
    }
    return !ready_.empty();
  }

  // The first position behind the pass or block at `position`; its entries that
  // are no passes stand in front of it. The order's size where there is none.
  int64_t EndOfPass(const RankProgram& rank, int64_t position) const {
    const RankOrder& order = *rank.order;
    for (; position < std::ssize(order); ++position) {
      const Pass pass = order[position];
      if (EntryOf(pass.kind()) == Entry::kBlock &&
          pass.kind() != PassKind::kRecompute && !pass.joint_with_next() &&
          rank.EndsPass(pass)) {
        return position + 1;
      }
    }
    return position;
  }

  // Runs actions until an input is missing.
  void Advance(size_t rank) {
    const RankProgram& program = own_.ranks[rank];
    const RankOrder& order = *program.order;
    std::vector<Action>& actions = steps_[rank].actions;
    std::vector<RankSteps::Input>& inputs = steps_[rank].inputs;
    int64_t& position = positions_[rank];
    while (position < std::ssize(order)) {
      const int64_t end = EndOf(rank, position);
      int64_t step =
          (actions.empty() ? 0 : actions.back().step + 1) + GapOf(rank);
      int64_t begin = end;
      const size_t known = inputs.size();
      for (int64_t at = position; at < end; ++at) {
        if (EntryOf(order[at].kind()) != Entry::kBlock) continue;
        begin = std::min(begin, at);
        const int32_t input = program.lanes[order[at].lane()].input;
        if (input < 0) continue;
        const auto made = made_[input].find(order[at].key());
        if (made == made_[input].end()) {
          awaited_[input][order[at].key()] = rank;
          blocked_[rank] = at;
          inputs.resize(known);
          return;
        }
        step = std::max(step, made->second + 1);
        inputs.push_back({.position = at, .step = made->second});
      }
      if (begin < end) {
        actions.push_back({.begin = begin, .end = end, .step = step});
      }
      for (int64_t at = position; at < end; ++at) {
        if (EntryOf(order[at].kind()) != Entry::kBlock) continue;
        const Lane& lane = program.lanes[order[at].lane()];
        if (lane.input >= 0) made_[lane.input].erase(order[at].key());
        if (lane.output >= 0) Make(lane.output, order[at].key(), step);
      }
      position = end;
    }
  }

  void Make(int32_t channel, uint64_t key, int64_t step) {
    made_[channel][key] = step;
    const auto awaited = awaited_[channel].find(key);
    if (awaited == awaited_[channel].end()) return;
    ready_.push_back(awaited->second);
    awaited_[channel].erase(awaited);
  }

  // In front of the rank's next action.
  int64_t GapOf(size_t rank) {
    if (batched_ || rank >= own_.schedule->gaps.size()) return 0;
    const std::vector<StepGap>& gaps = own_.schedule->gaps[rank];
    const auto action = std::ssize(steps_[rank].actions);
    size_t& next = gaps_[rank];
    while (next < gaps.size() && gaps[next].action < action) ++next;
    return next < gaps.size() && gaps[next].action == action ? gaps[next].steps
                                                             : 0;
  }

  const DpClass& own_;
  const bool batched_;
  std::vector<RankSteps> steps_;
  std::vector<int64_t> positions_;
  std::vector<bool> joins_;       // [rank] has pairs
  std::vector<int64_t> blocked_;  // [rank] the pass whose input is missing
  std::vector<int64_t> apart_;    // [rank] end of a forward that is not joined
  std::vector<size_t> gaps_;
  // [channel] key -> the step that has made it, until it is taken; the rank
  // that waits for it.
  std::vector<absl::flat_hash_map<uint64_t, int64_t>> made_;
  std::vector<absl::flat_hash_map<uint64_t, size_t>> awaited_;
  std::vector<size_t> ready_;
};

// Plain 1F1B ends in batches, so that searches over it need no replay.
bool IsPlain1F1B(const Schedule& schedule) {
  const int64_t microbatches = schedule.microbatches;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    if (std::ssize(order) != 2 * microbatches ||
        schedule.placement.StageOf(rank, 0) != rank) {
      return false;
    }
    const int64_t warm_up =
        std::min<int64_t>(microbatches, schedule.pp() - rank);
    std::array<int, 2> next{};  // microbatch
    for (int64_t at = 0; at < std::ssize(order); ++at) {
      const bool forward = at < warm_up || (at < 2 * microbatches - warm_up &&
                                            (at - warm_up) % 2 == 1);
      if (order[at] !=
          Pass(forward ? PassKind::kForward : PassKind::kBackwardFull,
               next[forward ? 1 : 0]++, 0)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<RankSteps>> TimeStepsOf(const DpClass& own,
                                                   bool batched) {
  return Steps(own, batched).Find();
}

bool WalksSteps(const Schedule& schedule, WaitRule rule) {
  if (rule != WaitRule::kBatched) return rule == WaitRule::kStepped;
  if (schedule.vpp() > 1 || schedule.directions > 1) return true;
  return !IsPlain1F1B(schedule) &&
         !CheckProgress(schedule, BlockingSteps(schedule), Semantics::kBatched)
              .ok();
}

absl::Status AddStepPosts(Program* program) {
  if (!WalksSteps(*program->schedule, program->wait_rule)) {
    return absl::OkStatus();
  }
  const bool batched = program->wait_rule == WaitRule::kBatched;
  const auto steps = TimeStepsOf(*program, batched);
  // Passes that wait for each other do so in batches, too.
  if (batched && !steps.ok()) return absl::OkStatus();
  PW_RETURN_IF_ERROR(steps.status());
  for (int rank = 0; rank < program->pp(); ++rank) {
    RankProgram& target = program->ranks[rank];
    std::vector<StepPost>& posts = target.step_posts;
    const std::vector<Action>& own = (*steps)[rank].actions;
    for (const Action& action : own) {
      for (int64_t at = action.begin; at < action.end; ++at) {
        const Pass pass = (*target.order)[at];
        const int32_t output = target.lanes[pass.lane()].output;
        if (output < 0) continue;
        posts.push_back(
            {.position = action.end,
             .post = {.channel = output, .send = true, .pass = pass}});
      }
    }
    for (const RankSteps::Input& input : (*steps)[rank].inputs) {
      const Pass pass = (*target.order)[input.position];
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
