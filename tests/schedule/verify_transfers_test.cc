#include "sim/schedule/verify_transfers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/engine/engine.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright::verify_transfers_test {
namespace {

ScheduleFile Read(absl::string_view content) {
  auto file = ParseScheduleFile(content, "f.csv");
  INFO(file.status().message());
  REQUIRE(file.ok());
  REQUIRE(VerifySchedule(file->schedule).ok());
  return *std::move(file);
}

std::string PairError(absl::string_view content) {
  const ScheduleFile file = Read(content);
  const absl::Status status = CheckPairs(file.schedule, file.steps);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

absl::Status Progress(const ScheduleFile& file, Semantics semantics) {
  REQUIRE(CheckPairs(file.schedule, file.steps).ok());
  return CheckProgress(file.schedule, file.steps, semantics);
}

constexpr Semantics kAll[] = {Semantics::kBuffered, Semantics::kRendezvous,
                              Semantics::kNccl, Semantics::kBatched};

constexpr char kGood[] =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";

std::string With(absl::string_view from, absl::string_view to) {
  const std::string text = absl::StrReplaceAll(kGood, {{from, to}});
  REQUIRE(text != kGood);
  return text;
}

TEST_CASE("transfers: a good file passes under every rule", "[schedule]") {
  for (const Semantics semantics : kAll) {
    CHECK(Progress(Read(kGood), semantics) == absl::OkStatus());
  }
}

TEST_CASE("transfers: sends and receives pair up", "[schedule]") {
  CHECK(PairError(With("0SEND_F1,", "")) ==
        "f.csv:2: rank 1, position 2: RECV_F1 (stage 1) has no send on rank 0");
  CHECK_THAT(PairError(With("1RECV_F1,", "")),
             Catch::Contains("f.csv:2: rank 1, position 2: F1 (stage 1) stands "
                             "before its receive"));
  CHECK_THAT(PairError(With("0SEND_F1", "0SEND_F1,0SEND_F1")),
             Catch::Contains("SEND_F1 (stage 0) stands twice"));
  CHECK_THAT(PairError(With("0F1,0SEND_F1", "0SEND_F1,0F1")),
             Catch::Contains("stands before the pass whose result it sends"));
  CHECK_THAT(PairError(With("1SEND_B1", "1SEND_B1,1SEND_F0")),
             Catch::Contains("SEND_F0 (stage 1) has no neighbour stage"));
  CHECK_THAT(PairError("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n"),
             Catch::Contains("between two stages of one rank"));
}

TEST_CASE("transfers: gradients are reduced once, behind the last backward",
          "[schedule]") {
  const std::string reduced = absl::StrReplaceAll(
      kGood,
      {{"0B1", "0B1,0REDUCE_GRAD"}, {"1SEND_B1", "1SEND_B1,1REDUCE_GRAD"}});
  CHECK(CheckPairs(Read(reduced).schedule, Read(reduced).steps).ok());
  CHECK_THAT(PairError(With("0B1", "0B1,0REDUCE_GRAD")),
             Catch::Contains("f.csv:2: rank 1: REDUCE_GRAD of stage 1 is "
                             "missing"));
  CHECK_THAT(PairError(With("0B1", "0B1,0REDUCE_GRAD,0REDUCE_GRAD")),
             Catch::Contains("REDUCE_GRAD (stage 0) stands twice"));
  CHECK_THAT(PairError(With("0RECV_B1", "0REDUCE_GRAD,0RECV_B1")),
             Catch::Contains("BW1 (stage 0) comes after the REDUCE_GRAD"));
}

TEST_CASE("transfers: stages are unsharded and resharded in turn",
          "[schedule]") {
  CHECK_THAT(PairError(With("0F0", "0UNSHARD,0UNSHARD,0F0")),
             Catch::Contains("UNSHARD (stage 0) is unsharded already"));
  CHECK_THAT(PairError(With("0F0,0S", "0UNSHARD,0F0,0RESHARD,0S")),
             Catch::Contains("runs on a stage that is not unsharded"));
  CHECK_THAT(PairError(With("0F0,0S", "0UNSHARD,0RESHARD,0UNSHARD,0F0,0S")),
             Catch::Contains("ends an UNSHARD that no pass uses"));
  CHECK_THAT(PairError(With("0F0,0S", "0RESHARD,0F0,0S")),
             Catch::Contains("RESHARD (stage 0) is not unsharded"));
}

TEST_CASE("transfers: rendezvous holds both sides in turn", "[schedule]") {
  // Both ranks send first: buffers or a batch take it, calls do not.
  const ScheduleFile crossed = Read(
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  CHECK(Progress(crossed, Semantics::kBuffered).ok());
  CHECK(Progress(crossed, Semantics::kNccl).ok());
  const absl::Status status = Progress(crossed, Semantics::kRendezvous);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() ==
        "f.csv:1: deadlock: with rendezvous transfers these ranks wait for "
        "each other\n"
        "  rank 0, position 3: SEND_F1 waits for its receive on rank 1\n"
        "  rank 1, position 3: SEND_B0 waits for its receive on rank 0\n"
        "rank 0: F0      SEND_F0 F1  >SEND_F1< RECV_B0 BW0 RECV_B1 ...\n"
        "rank 1: RECV_F0 F0      BW0 >SEND_B0< RECV_F1 F1  BW1 ...");
}

TEST_CASE("transfers: NCCL pairs messages by their order", "[schedule]") {
  const ScheduleFile swapped = Read(
      "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  CHECK(Progress(swapped, Semantics::kBuffered).ok());
  CHECK(Progress(swapped, Semantics::kNccl).message() ==
        "f.csv:2: rank 1, position 0: RECV_F1 is number 1 that rank 1 receives "
        "from rank 0, which sends SEND_F0 as number 1; NCCL pairs them by "
        "their order");
  CHECK_THAT(std::string(Progress(swapped, Semantics::kRendezvous).message()),
             Catch::Contains(">RECV_F1<"));
}

TEST_CASE("transfers: a receive posted too early blocks NCCL's stream",
          "[schedule]") {
  // The receive of B0 is in one batch with the send of F0: what rank 0 sends
  // next waits behind it, and rank 1 needs that first.
  const ScheduleFile early = Read(
      "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  CHECK(Progress(early, Semantics::kBuffered).ok());
  const std::string message(Progress(early, Semantics::kNccl).message());
  CHECK_THAT(message, Catch::Contains("deadlock: with nccl transfers"));
  CHECK_THAT(message, Catch::Contains("rank 0, position 2: RECV_B0 waits for "
                                      "its send on rank 1"));
  CHECK_THAT(message, Catch::Contains(">RECV_F1<"));
}

TEST_CASE("transfers: no send, however buffered, helps a cycle of passes",
          "[schedule]") {
  const auto file = ParseScheduleFile(
      "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
      "f.csv");
  REQUIRE(file.ok());
  CHECK_THAT(std::string(VerifyScheduleFile(*file).message()),
             Catch::Contains("f.csv:1: deadlock: 2 ranks wait in a cycle"));
  // A send that stands behind what needs its answer.
  const ScheduleFile late = Read(
      "0F0,0RECV_B0,0B0,0SEND_F0\n"
      "1RECV_F0,1F0,1B0,1SEND_B0\n");
  CHECK_THAT(std::string(Progress(late, Semantics::kBuffered).message()),
             Catch::Contains("rank 0, position 2: BW0 waits for its send on "
                             "rank 1"));
}

// Lists on NCCL's stream by definition: when each pass and each batch ends is
// raised until nothing is too early.
class NaiveStream {
 public:
  NaiveStream(const Schedule& schedule, const std::vector<StepList>& lists)
      : schedule_(schedule), lists_(lists) {
    for (const StepList& list : lists) {
      ends_.emplace_back(list.size(), 0);
      begins_.emplace_back(list.size(), 0);
    }
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      for (size_t at = 0; at < lists[rank].size(); ++at) {
        const Step& step = lists[rank][at];
        if (step.kind == StepKind::kPass) continue;
        const Message message = MessageOf(schedule, rank, step);
        places_[{message.index, step.kind == StepKind::kSend}] = {rank, at};
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (int rank = 0; rank < schedule.pp(); ++rank) changed |= Raise(rank);
    }
  }

  int64_t Steps() const {
    int64_t steps = 0;
    for (const std::vector<int64_t>& ends : ends_) {
      steps = std::max(steps, ends.back());
    }
    return steps;
  }

  // Sends that begin later than the pass in front of them has ended, since a
  // receive had not ended.
  int64_t Held() const {
    int64_t held = 0;
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      int64_t ready = 0;
      for (size_t at = 0; at < lists_[rank].size(); ++at) {
        const Step& step = lists_[rank][at];
        if (step.kind == StepKind::kPass) ready = ends_[rank][at];
        if (step.kind != StepKind::kSend || begins_[rank][at] <= ready) {
          continue;
        }
        for (size_t before = 0; before < at; ++before) {
          if (IsPass(rank, before) || Met(rank, before) < begins_[rank][at]) {
            continue;
          }
          held += lists_[rank][before].kind == StepKind::kReceive ? 1 : 0;
          break;
        }
      }
    }
    return held;
  }

 private:
  bool IsPass(int rank, size_t at) const {
    return lists_[rank][at].kind == StepKind::kPass;
  }

  int64_t Met(int rank, size_t at) const {
    const Step& step = lists_[rank][at];
    const auto [peer, place] =
        places_.at({MessageOf(schedule_, rank, step).index,
                    step.kind == StepKind::kReceive});
    return std::max(begins_[rank][at], begins_[peer][place]);
  }

  bool Raise(int rank) {
    const StepList& list = lists_[rank];
    const auto old = std::make_pair(ends_[rank], begins_[rank]);
    int64_t passed = 0;
    int64_t stream = 0;
    for (size_t at = 0; at < list.size();) {
      size_t behind = at + 1;
      if (!IsPass(rank, at)) {
        while (behind < list.size() && !IsPass(rank, behind)) ++behind;
        const int64_t begin = std::max(passed, stream);
        for (size_t each = at; each < behind; ++each) {
          begins_[rank][each] = begin;
        }
        stream = begin;
        for (size_t each = at; each < behind; ++each) {
          stream = std::max(stream, Met(rank, each));
        }
        for (size_t each = at; each < behind; ++each) {
          ends_[rank][each] = stream;
        }
      } else {
        behind += list[at].pass.joint_with_next() ? 1 : 0;
        for (size_t each = at; each < behind; ++each) {
          if (!NeedsReceive(schedule_, rank, list[each].pass)) continue;
          const int64_t message =
              MessageOf(schedule_, rank, ReceiveOf(list[each].pass)).index;
          const size_t place = places_.at({message, false}).second;
          passed = std::max(passed, ends_[rank][place]);
        }
        passed += IsComputePass(list[at].pass.kind()) ? 1 : 0;
        for (size_t each = at; each < behind; ++each) {
          ends_[rank][each] = passed;
        }
      }
      at = behind;
    }
    return old != std::make_pair(ends_[rank], begins_[rank]);
  }

  const Schedule& schedule_;
  const std::vector<StepList>& lists_;
  std::vector<std::vector<int64_t>> ends_;    // [rank][position]
  std::vector<std::vector<int64_t>> begins_;  // of transfers
  // (message, is sent): rank and position
  std::map<std::pair<int64_t, bool>, std::pair<int, size_t>> places_;
};

// Rank 0 of pytorch/pytorch#165664, with three ranks: receives of its second
// stage stand in front of sends of its first. In steps:
//
//   0  F0 runs 0-1, 1-2 and 2-3 on ranks 0, 1 and 2. Rank 0's batch of SEND_F0
//      and RECV_F0.1 lasts from 1 to 3; SEND_F1, ready at 2, waits for one
//      step.
//   1  So F1 runs 3-4 on rank 1 and 4-5 on rank 2. RECV_F1.1 ends at 5;
//   SEND_F2,
//      ready at 3, waits for two.
//   2  F2 runs 5-6 on rank 1 and 6-7 on rank 2. RECV_F2.1 ends at 7; SEND_F0.1,
//      ready at 4, waits for three.
//
// With each receive in front of its pass nothing waits: the last stage ends its
// forwards at 5 + 3, the first its backwards 5 + 3 later.
TEST_CASE("transfers: a receive posted early holds back sends", "[schedule]") {
  // Stages of one rank: three microbatches through each.
  const auto passes = [](int stage, const char* kind, bool takes, bool gives) {
    std::vector<std::string> steps;
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      const std::string pass = absl::StrCat(kind, microbatch);
      if (takes) steps.push_back(absl::StrCat(stage, "RECV_", pass));
      steps.push_back(absl::StrCat(stage, pass));
      if (gives) steps.push_back(absl::StrCat(stage, "SEND_", pass));
    }
    return absl::StrJoin(steps, ",");
  };
  const std::string behind = absl::StrCat(
      ",", passes(3, "B", true, true), ",", passes(0, "B", true, false), "\n",
      passes(1, "F", true, true), ",", passes(4, "F", true, true), ",",
      passes(4, "B", true, true), ",", passes(1, "B", true, true), "\n",
      passes(2, "F", true, true), ",", passes(5, "F", true, false), ",",
      passes(5, "B", false, true), ",", passes(2, "B", true, true), "\n");
  const ScheduleFile early = Read(absl::StrCat(
      "0F0,0SEND_F0,3RECV_F0,0F1,0SEND_F1,3RECV_F1,0F2,0SEND_F2,3RECV_F2,",
      passes(3, "F", false, true), behind));
  const ScheduleFile late = Read(absl::StrCat(
      passes(0, "F", false, true), ",", passes(3, "F", true, true), behind));
  ProgressFacts facts;
  CHECK(CheckProgress(early.schedule, early.steps, Semantics::kNccl, &facts) ==
        absl::OkStatus());
  CHECK(facts.longest.rank == 0);
  CHECK(facts.longest.send == SendOf(Pass(PassKind::kForward, 0, 1)));
  CHECK(facts.longest.receive == ReceiveOf(Pass(PassKind::kForward, 2, 1)));
  CHECK(facts.longest.steps == 3);
  CHECK(facts.held_sends >= 3);
  CHECK(facts.steps > 16);
  const NaiveStream naive(early.schedule, early.steps);
  CHECK(facts.held_sends == naive.Held());
  CHECK(facts.steps == naive.Steps());
  CHECK(CheckProgress(late.schedule, late.steps, Semantics::kNccl, &facts) ==
        absl::OkStatus());
  CHECK(facts.held_sends == 0);
  CHECK(facts.steps == 16);
  // Nothing is held back if nobody waits on a stream.
  for (const ScheduleFile* file : {&early, &late}) {
    CHECK(CheckProgress(file->schedule, file->steps, Semantics::kBuffered,
                        &facts) == absl::OkStatus());
    CHECK(facts.steps == 16);
    CHECK(facts.held_sends == 0);
  }
}

// Every registered schedule: posted ahead it runs on NCCL, and blocking calls
// end exactly where the engine with that rule ends. Whatever runs on NCCL runs
// in batches.
TEST_CASE("transfers: the rules agree with the engine on every schedule",
          "[schedule]") {
  int runs = 0;
  int deadlocks = 0;
  int holding = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const int pp : {1, 2, 4}) {
      for (const int microbatches : {2, 4, 8}) {
        ScheduleParams params;
        params.pp = pp;
        params.vpp = info->default_vpp;
        params.microbatches = microbatches;
        auto built = BuildSchedule(info->name, params);
        if (!built.ok()) continue;
        INFO(info->name << " pp " << pp << " m " << microbatches);
        const auto schedule =
            std::make_shared<const Schedule>(*std::move(built));
        const auto ahead = DefaultSteps(*schedule, Semantics::kNccl);
        CHECK(CheckPairs(*schedule, ahead) == absl::OkStatus());
        ProgressFacts facts;
        CHECK(CheckProgress(*schedule, ahead, Semantics::kNccl, &facts) ==
              absl::OkStatus());
        const NaiveStream naive(*schedule, ahead);
        CHECK(facts.steps == naive.Steps());
        CHECK(facts.held_sends == naive.Held());
        holding += facts.held_sends > 0 ? 1 : 0;
        CHECK(CheckProgress(*schedule, ahead, Semantics::kBuffered) ==
              absl::OkStatus());
        // Lowered with buffered transfers only.
        if (schedule->update_every > 0) continue;

        const auto blocking = DefaultSteps(*schedule, Semantics::kRendezvous);
        CHECK(CheckPairs(*schedule, blocking) == absl::OkStatus());
        LowerOptions options;
        options.costs = PassCosts::Uniform(pp, schedule->vpp(), {3, 5, 7});
        options.wait_rule = WaitRule::kRendezvous;
        options.iterations = 1;
        const auto program = Lower(schedule, options);
        REQUIRE(program.ok());
        const bool ends = FindEngine("fast").value()->run(*program, {}).ok();
        CHECK(CheckProgress(*schedule, blocking, Semantics::kRendezvous).ok() ==
              ends);
        ++(ends ? runs : deadlocks);
        options.wait_rule = WaitRule::kBatched;
        const auto batched = Lower(schedule, options);
        REQUIRE(batched.ok());
        for (const char* engine : {"fast", "simgrid"}) {
          INFO(engine);
          CHECK(FindEngine(engine).value()->run(*batched, {}).status() ==
                absl::OkStatus());
        }
      }
    }
  }
  CHECK(runs > 10);
  CHECK(deadlocks > 5);
  CHECK(holding > 5);
}

}  // namespace
}  // namespace pipewright::verify_transfers_test
