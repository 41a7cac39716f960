// Calls on communicators: which belong together, and when they end.
#include "sim/program/comm_calls.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/transport/nccl_plan.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright::comm_calls_test {
namespace {

using testing::MakeSmallTraining;

constexpr DeviceRoom kLarge;

std::string Verdict(const CommCalls& calls, const DeviceRoom& room = kLarge) {
  const absl::Status status = ProveCalls(calls, room);
  CHECK(
      (status.ok() || status.code() == absl::StatusCode::kFailedPrecondition));
  return std::string(status.message());
}

CommCall On(int comm, bool sends, int64_t key,
            std::vector<CallPlace> needs = {}) {
  return {.comm = comm,
          .sends = sends,
          .key = key,
          .what = "activation " + std::to_string(key),
          .bytes = 4,
          .needs = std::move(needs)};
}
CommCall Sum(int comm, double bytes = 4) {
  return {.comm = comm, .what = "all-reduce", .bytes = bytes};
}

// Two ranks with a link each way.
CommCalls Pair() {
  return {.comms = {{{0, 1}}, {{1, 0}}},
          .issuers = {"rank 0", "rank 1"},
          .calls = {{}, {}}};
}

TEST_CASE("calls: both send first", "[program]") {
  CommCalls calls = Pair();
  calls.calls[0] = {On(0, true, 1), On(1, false, 2)};
  calls.calls[1] = {On(1, true, 2), On(0, false, 1)};
  // A queue for each of the two communicators, or one; a kernel for each.
  CHECK(Verdict(calls, {2, 2}).empty());
  CHECK(Verdict(calls, {8, 128}).empty());
  // Kernels of two streams run at a time in one queue, too.
  CHECK(Verdict(calls, {1, 2}).empty());
  const std::string circle = Verdict(calls, {8, 1});
  INFO(circle);
  CHECK(absl::StrContains(circle,
                          "rank 0: send of activation 1 to rank 1 is "
                          "resident and waits for its other end rank 1: "
                          "receive of activation 1 from rank 0"));
  CHECK(absl::StrContains(circle, "until fewer kernels are resident"));
  CHECK(std::count(circle.begin(), circle.end(), '\n') == 4);
  // One sends first: one kernel is enough.
  std::swap(calls.calls[1][0], calls.calls[1][1]);
  CHECK(Verdict(calls, {1, 1}).empty());
}

TEST_CASE("calls: both send twice first", "[program]") {
  // The second send waits for the first on its stream, and holds up the queue.
  CommCalls calls = Pair();
  calls.calls[0] = {On(0, true, 1), On(0, true, 2), On(1, false, 3),
                    On(1, false, 4)};
  calls.calls[1] = {On(1, true, 3), On(1, true, 4), On(0, false, 1),
                    On(0, false, 2)};
  CHECK(Verdict(calls, {2, 2}).empty());
  const std::string circle = Verdict(calls, {1, 128});
  INFO(circle);
  CHECK(absl::StrContains(circle, "waits in its queue behind"));
  CHECK(absl::StrContains(circle, "waits on its stream behind"));
  CHECK(std::count(circle.begin(), circle.end(), '\n') == 6);
}

TEST_CASE("calls: a pass between two calls", "[program]") {
  // Each sends what it makes of what it receives: nobody begins.
  CommCalls calls = Pair();
  calls.calls[0] = {On(1, false, 2), On(0, true, 1, {{0, 0}})};
  calls.calls[1] = {On(0, false, 1), On(1, true, 2, {{1, 0}})};
  const std::string circle = Verdict(calls);
  INFO(circle);
  CHECK(absl::StrContains(circle, "is issued behind a pass that waits for"));
  calls.calls[0][1].needs.clear();
  CHECK(Verdict(calls).empty());
}

TEST_CASE("calls: a swapped order, a missing receive, another size",
          "[program]") {
  CommCalls calls = Pair();
  calls.calls[0] = {On(0, true, 1), On(0, true, 2)};
  calls.calls[1] = {On(0, false, 2), On(0, false, 1)};
  CHECK(absl::StrContains(
      Verdict(calls),
      "rank 0: send of activation 1 to rank 1, 4 bytes, is number 1 of its "
      "communicator, and meets rank 1: receive of activation 2 from rank 0"));
  std::swap(calls.calls[1][0], calls.calls[1][1]);
  CHECK(Verdict(calls).empty());
  calls.calls[1][1].bytes = 8;
  CHECK(absl::StrContains(Verdict(calls), "is number 2 of its communicator"));
  calls.calls[1].pop_back();
  CHECK(Verdict(calls) ==
        "rank 0: send of activation 2 to rank 1 is number 2 of its "
        "communicator; rank 1 has 1");
  CommCalls sums = {
      .comms = {{{0, 1, 2}, false}},
      .issuers = {"a", "b", "c"},
      .calls = {{Sum(0), Sum(0, 8)}, {Sum(0), Sum(0, 8)}, {Sum(0, 8), Sum(0)}}};
  CHECK(absl::StrContains(Verdict(sums), "and meets c: all-reduce, 8 bytes"));
}

TEST_CASE("calls: two communicators crossed", "[program]") {
  CommCalls calls = {.comms = {{{0, 1}, false}, {{0, 1}, false}},
                     .issuers = {"rank 0", "rank 1"},
                     .calls = {{Sum(0), Sum(1)}, {Sum(1), Sum(0)}}};
  CHECK(Verdict(calls, {2, 2}).empty());
  CHECK(Verdict(calls, {1, 2}).empty());
  CHECK(absl::StrContains(Verdict(calls, {2, 1}), "in a circle"));
  std::swap(calls.calls[1][0], calls.calls[1][1]);
  CHECK(Verdict(calls, {1, 1}).empty());
  // Of three ranks in a ring, each with two communicators.
  calls = {.comms = {{{0, 1}, false}, {{1, 2}, false}, {{2, 0}, false}},
           .issuers = {"a", "b", "c"},
           .calls = {{Sum(0), Sum(0), Sum(2), Sum(2)},
                     {Sum(1), Sum(1), Sum(0), Sum(0)},
                     {Sum(2), Sum(2), Sum(1), Sum(1)}}};
  CHECK(absl::StrContains(Verdict(calls, {1, 9}), "in a circle"));
  CHECK(Verdict(calls, {2, 2}).empty());
}

// The planted ones, in a program that holds.
void CheckPlanted(const CommCalls& sound) {
  for (size_t issuer = 0; issuer < sound.calls.size(); ++issuer) {
    REQUIRE_FALSE(sound.calls[issuer].empty());
    CommCalls missing = sound;
    for (auto& list : missing.calls) {
      for (CommCall& call : list) call.needs.clear();
    }
    missing.calls[issuer].pop_back();
    CHECK_FALSE(Verdict(missing).empty());
    // The first, and the next of its communicator that is another one.
    CommCalls swapped = sound;
    std::vector<CommCall>& list = swapped.calls[issuer];
    const auto next =
        std::find_if(list.begin(), list.end(), [&](const CommCall& call) {
          return call.comm == list[0].comm && call.key != list[0].key;
        });
    REQUIRE(next != list.end());
    std::swap(list[0].key, next->key);
    CHECK_FALSE(Verdict(swapped).empty());
  }
}

TEST_CASE("calls: of every schedule, in as much room as a GPU has",
          "[program][schedule]") {
  int proven = 0;
  for (const ScheduleInfo* const info : AllSchedules()) {
    INFO(info->name);
    const auto training =
        MakeSmallTraining(info->name, 4, 1, WaitRule::kBuffered);
    // Of another pp, or never flushed.
    if (!training.ok() || training->schedule->update_every > 0) continue;
    ++proven;
    const CommCalls calls = CallsOf(training->program);
    CHECK(Verdict(calls) == "");
    CHECK(calls.most_comms >= 2);
    CHECK(kLarge.HoldsAll(calls));
  }
  CHECK(proven > 20);
}

TEST_CASE("calls: of copies that sum their gradients", "[program]") {
  for (const char* const name : {"1f1b", "zb-v"}) {
    const auto training = MakeSmallTraining(name, 2, 2, WaitRule::kBuffered);
    REQUIRE(training.ok());
    const CommCalls calls = CallsOf(training->program);
    // Four ranks, and a thread for each of the four links.
    CHECK(calls.issuers.size() == 8);
    // A link each way and the copies of each stage.
    CHECK(calls.most_comms >= 3);
    CHECK(std::any_of(calls.comms.begin(), calls.comms.end(),
                      [](const auto& comm) { return !comm.link; }));
    CHECK(Verdict(calls).empty());
    CheckPlanted(calls);
  }
}

TEST_CASE("calls: the queues that CUDA is told", "[program][nccl]") {
  CHECK(RoomOfDevice(nullptr).queues == 8);
  CHECK(RoomOfDevice("1").queues == 1);
  CHECK(RoomOfDevice("64").queues == 32);
  CHECK(RoomOfDevice("0").queues == 1);
  CHECK(RoomOfDevice("many").queues == 8);
}

}  // namespace
}  // namespace pipewright::comm_calls_test
