#include "sim/schedule/transfers.h"

#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// The stage next to `stage` in the direction that `pass` sends, or that it
// receives from; -1 where the pipeline ends or nothing flows.
int Neighbour(const Schedule& schedule, Pass pass, int stage, bool sends) {
  const bool backward = IsBackward(pass.kind());
  if (!backward && pass.kind() != PassKind::kForward) return -1;
  if (backward && schedule.backward != BackwardRule::kChain) return -1;
  const int next = stage + (sends == backward ? -1 : 1);
  return next < 0 || next >= schedule.stages() ? -1 : next;
}

int StageOf(const Schedule& schedule, int rank, Pass pass) {
  return schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
}

Pass Carried(Pass pass) {
  return Pass(
      IsBackward(pass.kind()) ? PassKind::kBackwardInput : PassKind::kForward,
      pass.microbatch(), pass.chunk(), pass.slice(), pass.direction());
}

int64_t UnitCount(const Schedule& schedule) {
  return int64_t{schedule.microbatches_per_direction()} * schedule.slices;
}

// The number of the message that the backward or forward of `stage` needs.
int64_t IndexOf(const Schedule& schedule, Pass pass, int stage) {
  const int64_t is_gradient = IsBackward(pass.kind()) ? 1 : 0;
  return ((is_gradient * schedule.directions + pass.direction()) *
              schedule.stages() +
          stage) *
             UnitCount(schedule) +
         int64_t{pass.microbatch()} * schedule.slices + pass.slice();
}

// One run of the sweeps behind PostAhead. Ranks that would wait in a sweep are
// left out until what they wait for is there.
class Poster {
 public:
  Poster(const Schedule& schedule, const std::vector<StepList>& lists)
      : schedule_(schedule),
        lists_(lists),
        positions_(lists.size(), 0),
        there_(MessageCount(schedule), false),
        waits_(lists.size(), false),
        placed_(lists.size()) {
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      placed_[rank].reserve(2 * lists[rank].size());
    }
  }

  std::vector<StepList> Run(int64_t* visits) && {
    for (int rank = 0; rank < schedule_.pp(); ++rank) turns_.emplace(0, rank);
    while (!turns_.empty()) {
      std::tie(sweep_, rank_) = turns_.top();
      turns_.pop();
      if (visits != nullptr) ++*visits;
      if (positions_[rank_] == lists_[rank_].size()) continue;
      if (TryOne(rank_)) {
        turns_.emplace(sweep_ + 1, rank_);
      } else {
        waits_[rank_] = true;
      }
    }
    for (size_t rank = 0; rank < lists_.size(); ++rank) {
      PW_CHECK(positions_[rank] == lists_[rank].size());
    }
    return std::move(placed_);
  }

 private:
  bool Ready(int rank, const Step& step) const {
    if (step.kind != StepKind::kPass) return true;
    const int stage = StageOf(schedule_, rank, step.pass);
    return Neighbour(schedule_, step.pass, stage, false) < 0 ||
           there_[IndexOf(schedule_, step.pass, stage)];
  }

  bool TryOne(int rank) {
    const StepList& list = lists_[rank];
    size_t& position = positions_[rank];
    const size_t parts = list[position].kind == StepKind::kPass &&
                                 list[position].pass.joint_with_next()
                             ? 2
                             : 1;
    for (size_t part = 0; part < parts; ++part) {
      if (!Ready(rank, list[position + part])) return false;
    }
    for (size_t part = 0; part < parts; ++part) {
      placed_[rank].push_back(list[position + part]);
    }
    for (size_t part = 0; part < parts; ++part) {
      Deliver(rank, list[position + part]);
    }
    position += parts;
    return true;
  }

  void Deliver(int rank, const Step& step) {
    if (step.kind != StepKind::kPass) return;
    const int next = Neighbour(schedule_, step.pass,
                               StageOf(schedule_, rank, step.pass), true);
    if (next < 0) return;
    there_[IndexOf(schedule_, step.pass, next)] = true;
    const int direction = step.pass.direction();
    const int peer = schedule_.placement.RankOf(next, direction);
    if (peer == rank) return;
    if (waits_[peer]) {
      // Its turn in this sweep may be over.
      turns_.emplace(peer > rank_ ? sweep_ : sweep_ + 1, peer);
      waits_[peer] = false;
    }
    placed_[rank].push_back(SendOf(step.pass));
    placed_[peer].push_back(ReceiveOf(
        Pass(step.pass.kind(), step.pass.microbatch(),
             schedule_.placement.ChunkOf(next), step.pass.slice(), direction)));
  }

  const Schedule& schedule_;
  const std::vector<StepList>& lists_;
  std::vector<size_t> positions_;
  std::vector<bool> there_;              // [message]
  using Turn = std::pair<int64_t, int>;  // sweep and rank
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<bool> waits_;  // [rank] has no turn
  int64_t sweep_ = 0;
  int rank_ = 0;
  std::vector<StepList> placed_;
};

}  // namespace

Message MessageOf(const Schedule& schedule, int rank, const Step& step) {
  const bool sends = step.kind == StepKind::kSend;
  const int stage = StageOf(schedule, rank, step.pass);
  const int neighbour = Neighbour(schedule, step.pass, stage, sends);
  if (neighbour < 0) return {};
  return {schedule.placement.RankOf(neighbour, step.pass.direction()),
          IndexOf(schedule, step.pass, sends ? neighbour : stage)};
}

int64_t MessageCount(const Schedule& schedule) {
  return 2 * int64_t{schedule.directions} * schedule.stages() *
         UnitCount(schedule);
}

bool NeedsReceive(const Schedule& schedule, int rank, Pass pass) {
  const int before =
      Neighbour(schedule, pass, StageOf(schedule, rank, pass), false);
  return before >= 0 &&
         schedule.placement.RankOf(before, pass.direction()) != rank;
}

bool NeedsSend(const Schedule& schedule, int rank, Pass pass) {
  const int next =
      Neighbour(schedule, pass, StageOf(schedule, rank, pass), true);
  return next >= 0 && schedule.placement.RankOf(next, pass.direction()) != rank;
}

Step SendOf(Pass pass) { return {StepKind::kSend, Carried(pass)}; }
Step ReceiveOf(Pass pass) { return {StepKind::kReceive, Carried(pass)}; }

std::vector<StepList> PassSteps(const Schedule& schedule) {
  std::vector<StepList> lists(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    lists[rank].reserve(schedule.order(rank).size());
    for (const Pass pass : schedule.order(rank)) {
      lists[rank].push_back({StepKind::kPass, pass});
    }
  }
  return lists;
}

std::vector<StepList> BlockingSteps(const Schedule& schedule) {
  std::vector<StepList> lists(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    StepList& list = lists[rank];
    for (size_t first = 0; first < order.size();) {
      const size_t end = first + (order[first].joint_with_next() ? 2 : 1);
      for (size_t index = first; index < end; ++index) {
        if (NeedsReceive(schedule, rank, order[index])) {
          list.push_back(ReceiveOf(order[index]));
        }
      }
      for (size_t index = first; index < end; ++index) {
        list.push_back({StepKind::kPass, order[index]});
      }
      for (size_t index = first; index < end; ++index) {
        if (NeedsSend(schedule, rank, order[index])) {
          list.push_back(SendOf(order[index]));
        }
      }
      first = end;
    }
  }
  return lists;
}

std::vector<StepList> PostAhead(const Schedule& schedule,
                                const std::vector<StepList>& lists,
                                int64_t* visits) {
  return Poster(schedule, lists).Run(visits);
}

std::string StepToString(const Schedule& schedule, const Step& step) {
  if (step.kind == StepKind::kPass) return PassToString(schedule, step.pass);
  const auto named = [&](absl::string_view name) {
    return schedule.vpp() == 1 ? std::string(name)
                               : absl::StrCat(name, ".", step.pass.chunk());
  };
  switch (step.kind) {
    case StepKind::kUnshard:
      return named("UNSHARD");
    case StepKind::kReshard:
      return named("RESHARD");
    case StepKind::kReduceGradient:
      return named("REDUCE_GRAD");
    default:
      return absl::StrCat(step.kind == StepKind::kSend ? "SEND_" : "RECV_",
                          PassToString(schedule, step.pass));
  }
}

}  // namespace pipewright
