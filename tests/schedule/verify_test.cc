#include "sim/schedule/verify.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/schedule/text.h"
#include "tests/support/naive_order.h"

namespace pipewright::verify_test {
namespace {

absl::Status Verify(absl::string_view header, absl::string_view orders) {
  auto schedule = ParseSchedule(
      absl::StrCat("pipewright-schedule 1\n", header, "\n", orders, "\n"), "f");
  INFO(schedule.status().message());
  REQUIRE(schedule.ok());
  schedule->lines.clear();  // as built; that lines are named is a test below
  return VerifySchedule(*schedule);
}

std::string Error(absl::string_view header, absl::string_view orders) {
  const absl::Status status = Verify(header, orders);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

constexpr char kOne[] = "pp 1 vpp 1 microbatches 2";

TEST_CASE("verify: missing and doubled passes are named", "[schedule]") {
  CHECK(Error(kOne, "0: F0 BW0 BW1") ==
        "rank 0, position 2: BW1 stands before F1 (stage 0, microbatch 1)");
  CHECK(Error(kOne, "0: F0 BW0") ==
        "rank 0: F1 is missing (stage 0, microbatch 1)");
  CHECK(Error(kOne, "0: F0 F1 BW0") ==
        "rank 0: F1 has no backward (BW, or B and W) (stage 0, microbatch 1)");
  CHECK(Error(kOne, "0: F0 F1 BW0 B1") ==
        "rank 0: F1 has a B and no W (stage 0, microbatch 1)");
  CHECK(Error(kOne, "0: F0 F1 F0 BW0 BW1") ==
        "rank 0, position 2: F0 stands twice (stage 0, microbatch 0)");
  CHECK(Error(kOne, "0: F0 F1 BW0 B0 BW1") ==
        "rank 0, position 3: B0 is a second backward (stage 0, microbatch 0)");
  CHECK(Error(kOne, "0: F0 F1 BW0 W0 BW1") ==
        "rank 0, position 3: W0 is a second weight gradient (stage 0, "
        "microbatch 0)");
  CHECK_THAT(Error("pp 2 vpp 2 microbatches 1",
                   "0: F0.0 F0.1 BW0.1 BW0.0\n1: F0.0 BW0.0"),
             Catch::Contains("rank 1: F0.1 is missing (stage 3, "));
}

TEST_CASE("verify: order on one rank", "[schedule]") {
  CHECK_THAT(Error(kOne, "0: B0 F0 W0 F1 BW1"),
             Catch::Contains("position 0: B0 stands before F0"));
  CHECK_THAT(Error(kOne, "0: F0 W0 B0 F1 BW1"),
             Catch::Contains("position 1: W0 stands before B0"));
  CHECK(Verify(kOne, "0: F0 O0 F1 B1 W1 L0 R0 BW0 SYNC0").ok());
  CHECK_THAT(Error(kOne, "0: R0 F0 BW0 F1 BW1"),
             Catch::Contains("R0 stands before F0"));
  CHECK_THAT(Error(kOne, "0: F0 R0 R0 BW0 F1 BW1"),
             Catch::Contains("position 2: R0 stands twice"));
  CHECK_THAT(Error(kOne, "0: F0 BW0 R0 F1 BW1"),
             Catch::Contains("R0 comes after the backward pass that needs it"));
  CHECK_THAT(Error(kOne, "0: F0 L0 BW0 F1 BW1"),
             Catch::Contains("L0 stands before O0"));
  CHECK_THAT(Error(kOne, "0: F0 O0 BW0 L0 F1 BW1"),
             Catch::Contains("BW0 needs activations that were offloaded and "
                             "not loaded"));
  CHECK_THAT(Error(kOne, "0: F0 O0 B0 L0 W0 F1 BW1"),
             Catch::Contains("B0 needs activations that were offloaded and "
                             "not loaded"));
  CHECK(Verify(kOne, "0: F0 O0 L0 B0 W0 F1 BW1").ok());
  CHECK_THAT(Error(kOne, "0: F0 B0 R0 W0 F1 BW1"),
             Catch::Contains("R0 comes after the backward pass that needs it"));
  CHECK_THAT(Error(kOne, "0: F0 O0 L0 L0 BW0 F1 BW1"),
             Catch::Contains("L0 stands twice"));
  CHECK_THAT(Error(kOne, "0: F0 BW0 O0 F1 BW1"),
             Catch::Contains("O0 comes after the backward"));
  CHECK(Verify(kOne, "0: F0 O0 F1 FREE0 BW1 L0 BW0").ok());
  CHECK_THAT(Error(kOne, "0: F0 FREE0 O0 F1 BW1 L0 BW0"),
             Catch::Contains("FREE0 stands before O0"));
  CHECK_THAT(Error(kOne, "0: F0 O0 F1 BW1 L0 FREE0 BW0"),
             Catch::Contains("FREE0 stands behind the load"));
  CHECK_THAT(Error(kOne, "0: F0 O0 FREE0 FREE0 F1 BW1 L0 BW0"),
             Catch::Contains("FREE0 stands twice"));
  CHECK_THAT(Error(kOne, "0: F0 O0 F1 R0 BW1 L0 BW0"),
             Catch::Contains("were offloaded and not loaded"));
  CHECK_THAT(Error(kOne, "0: F0 BW0 F1 BW1 SYNC0 SYNC1"),
             Catch::Contains("SYNC1 is a second SYNC of its chunk"));
}

TEST_CASE("verify: slices run forward up and backward down", "[schedule]") {
  const std::string header = "pp 1 vpp 1 microbatches 1 slices 2";
  CHECK(Verify(header, "0: F0s0 F0s1 BW0s1 BW0s0").ok());
  CHECK_THAT(Error(header, "0: F0s1 F0s0 BW0s1 BW0s0"),
             Catch::Contains("F0s1 stands before F0s0"));
  CHECK_THAT(Error(header, "0: F0s0 F0s1 BW0s0 BW0s1"),
             Catch::Contains("BW0s0 stands before the backward of slice 1"));
}

TEST_CASE("verify: joint pairs", "[schedule]") {
  CHECK(Verify(kOne, "0: F0 (F1&BW0) BW1").ok());
  CHECK(Verify(kOne, "0: F0 (B0&F1) W0 BW1").ok());
  CHECK_THAT(Error(kOne, "0: F0 (F1&BW1) BW0"),
             Catch::Contains("F1 is joint with a pass that needs it"));
  CHECK_THAT(Error(kOne, "0: (F0&F1) BW0 BW1"),
             Catch::Contains("not one F and one B or BW"));
  CHECK_THAT(Error(kOne, "0: F0 F1 B0 (F1&W0) BW1"),
             Catch::Contains("not one F and one B or BW"));
  CHECK_THAT(Error(kOne, "0: F0 (F1&BW0) (F1&BW1)"),
             Catch::Contains("position 3"));
}

// The second of a pair has an input of its own: either comes from rank 1.
TEST_CASE("verify: a joint pair waits for both of its inputs", "[schedule]") {
  const std::string two = "pp 2 vpp 1 microbatches 2";
  for (const char* pair : {"(F1&BW0)", "(BW0&F1)"}) {
    CHECK(Verify(two, absl::StrCat("0: F0 ", pair, " BW1\n1: F0 BW0 F1 BW1"))
              .ok());
    // Rank 1 wants F1, which rank 0 runs with BW0, before it gives BW0.
    CHECK_THAT(
        Error(two, absl::StrCat("0: F0 ", pair, " BW1\n1: F0 F1 BW0 BW1")),
        Catch::Contains("deadlock: 2 ranks wait in a cycle"));
  }
}

TEST_CASE("verify: ranks that wait in a cycle are shown", "[schedule]") {
  const std::string message =
      Error("pp 2 vpp 1 microbatches 2", "0: F0 BW0 F1 BW1\n1: F0 F1 BW0 BW1");
  CHECK(message ==
        "deadlock: 2 ranks wait in a cycle\n"
        "  rank 0, position 1: BW0 waits for the backward of F0 of stage 1 "
        "on rank 1\n"
        "  rank 1, position 1: F1 waits for F1 of stage 0 on rank 0\n"
        "rank 0: F0 >BW0< F1  BW1\n"
        "rank 1: F0 >F1<  BW0 BW1");
}

TEST_CASE("verify: what was read is named by file and line", "[schedule]") {
  const auto error = [](const std::string& content) {
    const auto schedule = ParseSchedule(content, "f.pws");
    REQUIRE(schedule.ok());
    return std::string(VerifySchedule(*schedule).message());
  };
  const std::string text =
      "# made by hand\npipewright-schedule 1\npp 2 vpp 1 microbatches 2\n\n"
      "1: F0 F1 BW0 BW1\n0: F0 BW0 F1 BW1\n";
  CHECK_THAT(error(text), Catch::StartsWith("f.pws:6: deadlock: 2 ranks"));
  CHECK_THAT(error(absl::StrReplaceAll(text, {{"F1 BW0", "BW0"}})),
             Catch::StartsWith("f.pws:5: rank 1, position 2: BW1 stands "
                               "before F1"));
  const std::string json =
      "{\"format\": \"pipewright-schedule\", \"version\": 1, \"pp\": 2,\n"
      "\"vpp\": 1, \"microbatches\": 1, \"orders\": [\n\"F0 BW0\",\n\n"
      "\"F0\"]}\n";
  CHECK_THAT(error(json),
             Catch::StartsWith("f.pws:5: rank 1: F0 has no backward"));
}

TEST_CASE("verify: a stage with a loss of its own waits for no other backward",
          "[schedule]") {
  const std::string header = "pp 2 vpp 1 microbatches 2 backward ";
  const std::string orders = "0: F0 BW0 F1 BW1\n1: F0 F1 BW0 BW1";
  CHECK_THAT(Error(header + "chain", orders), Catch::Contains("deadlock"));
  CHECK(Verify(header + "local", orders).ok());
  CHECK_THAT(Error(header + "local", "0: F0 BW0 F1\n1: F0 F1 BW0 BW1"),
             Catch::Contains("rank 0: F1 has no backward"));
}

TEST_CASE("verify: inference is forward passes only", "[schedule]") {
  const std::string header = "pp 2 vpp 1 microbatches 2 backward none";
  CHECK(Verify(header, "0: F0 F1\n1: F0 F1").ok());
  CHECK(Error(header, "0: F0 F1\n1: F0") ==
        "rank 1: F1 is missing (stage 1, microbatch 1)");
  CHECK_THAT(Error(header, "0: F0 F1 BW0\n1: F0 F1"),
             Catch::Contains("rank 0, position 2: BW0 is in a schedule whose "
                             "header says backward none; allowed: F"));
  CHECK_THAT(Error("pp 2 vpp 2 microbatches 1 placement v backward none",
                   "0: F0.0 F0.1\n1: F0.1 F0.0"),
             Catch::Contains("rank 1, position 0: F0.1 stands before F0.0"));
}

TEST_CASE("verify: a turn on one rank in the wrong order", "[schedule]") {
  CHECK_THAT(Error("pp 2 vpp 2 microbatches 1 placement v",
                   "0: F0.0 F0.1 BW0.1 BW0.0\n1: F0.1 F0.0 BW0.1 BW0.0"),
             Catch::Contains("rank 1, position 0: F0.1 stands before F0.0 of "
                             "stage 1 on the same rank"));
}

TEST_CASE("verify: the grid marks blocked passes and ends", "[schedule]") {
  const auto schedule = ParseSchedule(
      "pipewright-schedule 1\npp 2 vpp 1 microbatches 5\n"
      "0: F0 F1 F2 F3 F4 (F0&BW0) BW1 BW2 BW3 BW4\n1: F0 F1\n",
      "f");
  REQUIRE(schedule.ok());
  CHECK(BlockedGrid(*schedule, {5, 2}) ==
        "rank 0: ... F2 F3 F4 >(F0&BW0)< BW1 BW2 BW3 ...\n"
        "rank 1:        F0 F1 (end)");
}

TEST_CASE("verify: a header that promises too much costs no memory",
          "[schedule]") {
  // Dense tables would take 2^31 * 2^14 entries.
  CHECK_THAT(
      Error("pp 1 vpp 1 microbatches 2147483647 slices 16384", "0: F0s0 F0s1"),
      Catch::Contains("F0s0 has no backward"));
  CHECK_THAT(Error("pp 65536 vpp 16 microbatches 2000000000",
                   [] {
                     std::string orders;
                     for (int rank = 0; rank < 65536; ++rank) {
                       absl::StrAppend(&orders, rank, ": F0.0\n");
                     }
                     return orders;
                   }()),
             Catch::Contains("rank 0: F0.0 has no backward"));
}

Schedule Replace(const Schedule& schedule, int rank, RankOrder order) {
  Schedule changed = schedule;
  changed.orders[rank] = std::make_shared<const RankOrder>(std::move(order));
  return changed;
}

std::vector<Schedule> Samples() {
  using testing::PlainSchedule;
  return {PlainSchedule(Placement::Plain(3), 3),
          PlainSchedule(Placement::Loop(2, 2), 2, 1, 1, true),
          PlainSchedule(Placement::V(2), 2, 2),
          PlainSchedule(Placement::V(2), 4, 1, 2, true),
          PlainSchedule(*Placement::FromList(2, {0, 0, 1, 1}), 2)};
}

TEST_CASE("verify: without any one pass, or with it twice, it is no schedule",
          "[schedule]") {
  for (const Schedule& schedule : Samples()) {
    REQUIRE(VerifySchedule(schedule).ok());
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      const RankOrder& order = schedule.order(rank);
      for (size_t position = 0; position < order.size(); ++position) {
        RankOrder shorter = order;
        shorter.erase(shorter.begin() + position);
        CHECK_FALSE(VerifySchedule(Replace(schedule, rank, shorter)).ok());
        RankOrder longer = order;
        longer.insert(longer.begin() + position, order[position]);
        CHECK_FALSE(VerifySchedule(Replace(schedule, rank, longer)).ok());
      }
    }
  }
}

TEST_CASE("verify: agrees with a naive replay on shuffled orders",
          "[schedule]") {
  std::mt19937 random(7);
  int legal = 0;
  int illegal = 0;
  for (const Schedule& sample : Samples()) {
    for (int round = 0; round < 400; ++round) {
      Schedule schedule = sample;
      for (int swap = 0; swap < 1 + round % 4; ++swap) {
        const int rank = static_cast<int>(random() % schedule.pp());
        RankOrder order = schedule.order(rank);
        const size_t first = random() % (order.size() - 1);
        if (round % 3 == 0) {
          std::swap(order[first], order[random() % order.size()]);
        } else {
          std::swap(order[first], order[first + 1]);
        }
        schedule = Replace(schedule, rank, order);
      }
      const bool runs = testing::NaiveReplay(schedule).has_value();
      INFO(ScheduleToText(schedule));
      const absl::Status status = VerifySchedule(schedule);
      INFO(status.message());
      CHECK(status.ok() == runs);
      ++(runs ? legal : illegal);
    }
  }
  CHECK(legal > 100);
  CHECK(illegal > 100);
}

}  // namespace
}  // namespace pipewright::verify_test
