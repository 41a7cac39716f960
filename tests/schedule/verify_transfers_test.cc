#include "sim/schedule/verify_transfers.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
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

// Every registered schedule: posted ahead it runs on NCCL, and blocking calls
// end exactly where the engine with that rule ends.
TEST_CASE("transfers: the rules agree with the engine on every schedule",
          "[schedule]") {
  int runs = 0;
  int deadlocks = 0;
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
        CHECK(CheckProgress(*schedule, ahead, Semantics::kNccl) ==
              absl::OkStatus());
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
      }
    }
  }
  CHECK(runs > 10);
  CHECK(deadlocks > 5);
}

}  // namespace
}  // namespace pipewright::verify_transfers_test
