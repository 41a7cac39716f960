// Where batched transfers stand, against Megatron-LM's own rule, and whether
// they end, against a replay of the communicators' streams by definition.
#include "sim/program/posted_steps.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/verify_transfers.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/random_schedule.h"

namespace pipewright::posted_steps_test {
namespace {

using Lists = std::vector<StepList>;
using Batch = std::multiset<std::string>;

Lists Posted(const std::shared_ptr<const Schedule>& schedule) {
  auto posted = PostedSteps(schedule, WaitRule::kBatched);
  INFO(posted.status());
  REQUIRE(posted.ok());
  return *std::move(posted);
}

bool IsTransfer(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive;
}

// What stands between the passes: one more than there are.
std::vector<Batch> BatchesOf(const Schedule& schedule, const StepList& list) {
  std::vector<Batch> batches(1);
  for (const Step& step : list) {
    if (IsTransfer(step)) {
      batches.back().insert(StepToString(schedule, step));
    } else {
      batches.emplace_back();
    }
  }
  return batches;
}

// forward_backward_pipelining_with_interleaving without overlap
// (NVIDIA/Megatron-LM core_v0.12.0,
// megatron/core/pipeline_parallel/schedules.py). Batches of a rank by the
// passes in front of them; -1 is a stage that sends nothing.
class Megatron {
 public:
  Megatron(int pp, int vpp, int microbatches, int group, int rank)
      : pp_(pp), vpp_(vpp), group_(group), rank_(rank) {
    for (int first = 0; first < microbatches; first += group) {
      const int last = std::min(first + group, microbatches);
      for (int chunk = 0; chunk < vpp; ++chunk) {
        for (int microbatch = first; microbatch < last; ++microbatch) {
          units_.emplace_back(microbatch, chunk);
        }
      }
    }
  }

  std::vector<Batch> Batches() {
    const int units = static_cast<int>(units_.size());
    const int warm_up =
        std::min((pp_ - rank_ - 1) * 2 + (vpp_ - 1) * group_, units);
    batches_.emplace_back();
    if (rank_ > 0) Add("RECV_", true, 0);  // recv_forward
    for (int k = 0; k < warm_up; ++k) {
      batches_.emplace_back();
      Send(true, k);
      if (k + 1 < units) Receive(true, k);
      // The last of the warm-up receives the first gradient, too.
      if (k == warm_up - 1 && warm_up < units && rank_ < pp_ - 1) {
        Add("RECV_", false, 0);
      }
    }
    for (int k = 0; k < units - warm_up; ++k) {
      batches_.emplace_back();  // nothing between forward and backward
      batches_.emplace_back();
      Send(true, k + warm_up);
      Send(false, k);
      if (k + warm_up + 1 < units) Receive(true, k + warm_up);
      Receive(false, k);
    }
    if (warm_up == units && rank_ < pp_ - 1) Add("RECV_", false, 0);
    for (int k = units - warm_up; k < units; ++k) {
      batches_.emplace_back();
      Send(false, k);
      if (k + 1 < units) Receive(false, k);
    }
    return batches_;
  }

 private:
  int ChunkOf(bool forward, int k) const {
    return forward ? units_[k].second : vpp_ - 1 - units_[k].second;
  }
  void Add(const char* what, bool forward, int microbatch, int chunk) {
    batches_.back().insert(
        absl::StrCat(what, forward ? "F" : "B", microbatch, ".", chunk));
  }
  void Add(const char* what, bool forward, int k) {
    Add(what, forward, units_[k].first, ChunkOf(forward, k));
  }

  void Send(bool forward, int k) {
    const int stage = ChunkOf(forward, k) * pp_ + rank_;
    if (stage != (forward ? pp_ * vpp_ - 1 : 0)) Add("SEND_", forward, k);
  }

  // recv_tensor_from_previous_stage: the leading stage receives what the ending
  // stage sends at the same time, pp - 1 units behind; others what they run
  // next.
  void Receive(bool forward, int k) {
    const int units = static_cast<int>(units_.size());
    if (rank_ != (forward ? 0 : pp_ - 1)) {
      if (k + 1 < units) Add("RECV_", forward, k + 1);
      return;
    }
    const int sent = k - (pp_ - 1);
    if (sent < 0) return;
    const int chunk = ChunkOf(forward, sent) + (forward ? 1 : -1);
    if (chunk < 0 || chunk == vpp_) return;
    Add("RECV_", forward, units_[sent].first, chunk);
  }

  const int pp_;
  const int vpp_;
  const int group_;
  const int rank_;
  std::vector<std::pair<int, int>> units_;  // microbatch, chunk
  std::vector<Batch> batches_;
};

TEST_CASE("batched: interleaved 1F1B exchanges as Megatron-LM", "[program]") {
  int compared = 0;
  for (const int pp : {3, 4, 6}) {
    for (const int vpp : {2, 3}) {
      for (const int rounds : {1, 2, 4}) {
        for (const int group : {pp, 2 * pp}) {
          const int microbatches = rounds * pp;
          if (microbatches % group != 0) continue;
          auto built =
              BuildSchedule("interleaved-1f1b",
                            {.pp = pp,
                             .vpp = vpp,
                             .microbatches = microbatches,
                             .own = {{"group-size", absl::StrCat(group)}}});
          REQUIRE(built.ok());
          const auto schedule =
              std::make_shared<const Schedule>(*std::move(built));
          const Lists lists = Posted(schedule);
          for (int rank = 0; rank < pp; ++rank) {
            // A single pair at the end of the warm-up has the order of a rank
            // that warms up with all forwards, whose batches are others.
            const int warm_up = 2 * (pp - rank - 1) + (vpp - 1) * group;
            if (warm_up == vpp * microbatches - 1) continue;
            INFO("pp " << pp << " vpp " << vpp << " microbatches "
                       << microbatches << " group " << group << " rank "
                       << rank);
            CHECK(BatchesOf(*schedule, lists[rank]) ==
                  Megatron(pp, vpp, microbatches, group, rank).Batches());
            ++compared;
          }
        }
      }
    }
  }
  CHECK(compared > 80);
}

// Plain 1F1B: send_forward_recv_backward, send_backward_recv_forward.
TEST_CASE("batched: plain 1F1B exchanges behind each pass", "[program]") {
  const auto schedule = Registered("1f1b", 2, 3);
  const Lists lists = Posted(schedule);
  CHECK(BatchesOf(*schedule, lists[0]) ==
        std::vector<Batch>{{},
                           {"SEND_F0"},
                           {"SEND_F1", "RECV_B0"},
                           {},
                           {"SEND_F2", "RECV_B1"},
                           {"RECV_B2"},
                           {}});
  CHECK(BatchesOf(*schedule, lists[1]) ==
        std::vector<Batch>{{"RECV_F0"},
                           {},
                           {"SEND_B0", "RECV_F1"},
                           {},
                           {"SEND_B1", "RECV_F2"},
                           {},
                           {"SEND_B2"}});
}

// pp 2, vpp 2, 4 microbatches, a pass takes a second and a hop none. Ranks
// exchange behind each column:
//
//           0-1  1-2  2-3   3-4        5-7        7-9        9-11
//   rank 0 F0.0 F1.0 F0.1  F1.1  F2.0 BW0.1 F3.0 BW1.1 F2.1 BW0.0
//   rank 1      F0.0 F1.0 F0.1 BW0.1 F1.1 BW1.1 F2.0 BW0.0 F3.0 BW1.0
//                        (3-5)
//               11-13    13-14    15-16 16-17 17-18
//   rank 0 F3.1 BW1.0    BW2.1    BW3.1 BW2.0 BW3.0
//   rank 1 F2.1 BW2.1 F3.1 BW3.1  BW2.0 BW3.0
//                      (13-15)
//
// Rank 0 begins what it runs next where rank 1 ends its pair.
TEST_CASE("batched: interleaved 1F1B of two ranks by hand", "[engine]") {
  const auto schedule = Registered("interleaved-1f1b", 2, 4, 2);
  LowerOptions options;
  options.costs = PassCosts::Uniform(2, 2, {2, 1, 1});
  options.wait_rule = WaitRule::kBatched;
  options.optimizer = OptimizerMode::kNone;
  options.iterations = 1;
  const Program program = Lowered(schedule, options);
  using Starts = std::vector<std::pair<std::string, double>>;
  const std::vector<Starts> expected = {{{"F0.0", 0},
                                         {"F1.0", 1},
                                         {"F0.1", 2},
                                         {"F1.1", 3},
                                         {"F2.0", 5},
                                         {"BW0.1", 6},
                                         {"F3.0", 7},
                                         {"BW1.1", 8},
                                         {"F2.1", 9},
                                         {"BW0.0", 10},
                                         {"F3.1", 11},
                                         {"BW1.0", 12},
                                         {"BW2.1", 13},
                                         {"BW3.1", 15},
                                         {"BW2.0", 16},
                                         {"BW3.0", 17}},
                                        {{"F0.0", 1},
                                         {"F1.0", 2},
                                         {"F0.1", 3},
                                         {"BW0.1", 4},
                                         {"F1.1", 5},
                                         {"BW1.1", 6},
                                         {"F2.0", 7},
                                         {"BW0.0", 8},
                                         {"F3.0", 9},
                                         {"BW1.0", 10},
                                         {"F2.1", 11},
                                         {"BW2.1", 12},
                                         {"F3.1", 13},
                                         {"BW3.1", 14},
                                         {"BW2.0", 15},
                                         {"BW3.0", 16}}};
  for (const auto run : {&RunFast, &RunSimgrid}) {
    FullTrace trace;
    const auto summary = run(program, {.trace = &trace});
    INFO(summary.status());
    REQUIRE(summary.ok());
    std::vector<Starts> told(2);
    for (const TraceOp& op : trace.ops()) {
      if (op.kind != OpKind::kPass) continue;
      told[op.rank].emplace_back(PassToString(*schedule, op.pass), op.start_s);
    }
    CHECK(told == expected);
    CHECK(summary->iteration_end_s[0] == 18);
  }
}

// The step at which each rank stands when nothing moves any more. A rank posts
// what stands up to its next pass, and goes on when every partner has posted.
std::vector<size_t> Replay(const Schedule& schedule, const Lists& lists) {
  const int pp = schedule.pp();
  std::map<std::pair<int64_t, bool>, std::pair<int, size_t>> sides;
  for (int rank = 0; rank < pp; ++rank) {
    for (size_t index = 0; index < lists[rank].size(); ++index) {
      const Step& step = lists[rank][index];
      if (!IsTransfer(step)) continue;
      const int64_t message = MessageOf(schedule, rank, step).index;
      sides[{message, step.kind == StepKind::kSend}] = {rank, index};
    }
  }
  const auto end_of_batch = [&](int rank, size_t index) {
    while (index < lists[rank].size() && IsTransfer(lists[rank][index])) {
      ++index;
    }
    return index;
  };
  std::vector<size_t> at(pp, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < pp; ++rank) {
      if (at[rank] == lists[rank].size()) continue;
      const size_t end = end_of_batch(rank, at[rank]);
      bool met = true;
      for (size_t index = at[rank]; index < end; ++index) {
        const Step& step = lists[rank][index];
        const auto [other, place] =
            sides.at({MessageOf(schedule, rank, step).index,
                      step.kind == StepKind::kReceive});
        met &= place < end_of_batch(other, at[other]);
      }
      if (!met) continue;
      at[rank] = std::max(end, at[rank] + (end == at[rank] ? 1 : 0));
      moved = true;
    }
  }
  return at;
}

bool Ends(const Lists& lists, const std::vector<size_t>& at) {
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    if (at[rank] < lists[rank].size()) return false;
  }
  return true;
}

Program BatchedProgram(const std::shared_ptr<const Schedule>& schedule,
                       bool in_steps) {
  LowerOptions options;
  options.costs = CostsOf(*schedule, {.forward = 2, .backward_input = 3});
  options.wait_rule = in_steps ? WaitRule::kBatched : WaitRule::kRendezvous;
  options.optimizer = OptimizerMode::kNone;
  options.iterations = 1;
  Program program = Lowered(schedule, options);
  if (!in_steps) program.wait_rule = WaitRule::kBatched;
  return program;
}

// Whatever is legal with buffers ends: the replay, `check` and both engines say
// so. With every receive directly in front of its pass, as `just_in_time`, some
// do not end, and all name the same passes.
TEST_CASE("batched: the replay, check and engines agree", "[program]") {
  Random random(7);
  int runs = 0;
  int deadlocks = 0;
  for (size_t row = 0; row < 2 * AllSchedules().size(); ++row) {
    for (const int pp : {2, 3, 4}) {
      auto built = AnySchedule(row, pp, random.Int(1, 2) * pp);
      // Those without a flush have no batches; copies split them.
      if (!built.ok() || built->update_every > 0 ||
          built->Has(PassKind::kOffload)) {
        continue;
      }
      if (row >= AllSchedules().size()) {
        *built = WithJointPairs(*built, random);
      }
      const auto schedule = std::make_shared<const Schedule>(*std::move(built));
      INFO(schedule->name << " pp " << pp << " microbatches "
                          << schedule->microbatches);
      const Lists lists = Posted(schedule);
      REQUIRE(CheckPairs(*schedule, lists) == absl::OkStatus());
      CHECK(Ends(lists, Replay(*schedule, lists)));
      CHECK(CheckProgress(*schedule, lists, Semantics::kBatched) ==
            absl::OkStatus());
      CHECK(CheckProgress(*schedule, lists, Semantics::kNccl) ==
            absl::OkStatus());
      const Program program = BatchedProgram(schedule, /*in_steps=*/true);
      CHECK(RunFast(program, {}).status() == absl::OkStatus());
      CHECK(RunSimgrid(program, {}).status() == absl::OkStatus());

      const Lists just_in_time = BlockingSteps(*schedule);
      const std::vector<size_t> at = Replay(*schedule, just_in_time);
      const Program early = BatchedProgram(schedule, /*in_steps=*/false);
      const absl::Status fast = RunFast(early, {}).status();
      const absl::Status events = RunSimgrid(early, {}).status();
      const bool ends = Ends(just_in_time, at);
      CHECK(fast.ok() == ends);
      CHECK(events.ok() == ends);
      const absl::Status check =
          CheckProgress(*schedule, just_in_time, Semantics::kBatched);
      const bool in_order =
          !absl::StrContains(check.message(), "by their order");
      if (in_order) CHECK(check.ok() == ends);
      ++(ends ? runs : deadlocks);
      for (int rank = 0; rank < pp && !ends; ++rank) {
        // The pass behind the batch in which the rank waits.
        size_t next = at[rank];
        const StepList& list = just_in_time[rank];
        while (next < list.size() && IsTransfer(list[next])) ++next;
        if (next == list.size()) continue;
        const Pass pass = list[next].pass;
        INFO("rank " << rank << " waits in front of "
                     << PassToString(*schedule, pass) << "\n"
                     << fast.message());
        const std::string marked =
            absl::StrCat(">", PassToString(*schedule, pass));
        if (pass.joint_with_next()) continue;
        CHECK(absl::StrContains(fast.message(), marked));
        CHECK(absl::StrContains(events.message(), marked));
        if (!in_order) continue;
        CHECK(absl::StrContains(check.message(),
                                absl::StrCat("rank ", rank, ", position ")));
      }
    }
  }
  CHECK(runs > 20);
  CHECK(deadlocks > 20);
}

// A receive that comes a batch late stands behind its pass, holds its sender
// back for ever, takes another's message or is harmless: `check` and the replay
// agree.
TEST_CASE("batched: a receive in a later batch", "[program]") {
  // Rank 0 receives a group before it needs it.
  auto built = BuildSchedule(
      "interleaved-1f1b",
      {.pp = 4, .vpp = 2, .microbatches = 8, .own = {{"group-size", "8"}}});
  REQUIRE(built.ok());
  const auto schedule = std::make_shared<const Schedule>(*std::move(built));
  int planted = 0;
  int held = 0;
  int harmless = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Lists lists = Posted(schedule);
    for (size_t index = 0; index < lists[rank].size(); ++index) {
      if (lists[rank][index].kind != StepKind::kReceive) continue;
      Lists late = lists;
      StepList& list = late[rank];
      // Behind the next batch, if its pass stands behind that.
      size_t to = index;
      while (to < list.size() && IsTransfer(list[to])) ++to;
      while (to < list.size() && !IsTransfer(list[to])) ++to;
      while (to < list.size() && IsTransfer(list[to])) ++to;
      std::rotate(list.begin() + index, list.begin() + index + 1,
                  list.begin() + to);
      ++planted;
      if (!CheckPairs(*schedule, late).ok()) continue;
      INFO("rank " << rank << " step " << index);
      const bool ends = Ends(late, Replay(*schedule, late));
      const absl::Status check =
          CheckProgress(*schedule, late, Semantics::kBatched);
      const bool in_order =
          !absl::StrContains(check.message(), "by their order");
      if (in_order) CHECK(check.ok() == ends);
      ++(check.ok() ? harmless : held);
    }
  }
  CHECK(planted > 100);
  CHECK(held > 0);
  CHECK(harmless > 0);
}

}  // namespace
}  // namespace pipewright::posted_steps_test
