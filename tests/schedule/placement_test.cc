#include "sim/schedule/placement.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace pipewright::placement_test {
namespace {

// rank.chunk of every stage.
std::string Layout(const Placement& placement, int replica = 0) {
  std::string text;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int rank = placement.RankOf(stage, replica);
    const int chunk = placement.ChunkOf(stage);
    if (placement.StageOf(rank, chunk, replica) != stage) return "no inverse";
    absl::StrAppend(&text, stage == 0 ? "" : " ", rank, ".", chunk);
  }
  return text;
}

TEST_CASE("placement: each shape puts stages where it says", "[schedule]") {
  CHECK(Layout(Placement::Plain(3)) == "0.0 1.0 2.0");
  CHECK(Layout(Placement::Plain(1)) == "0.0");
  CHECK(Layout(Placement::Loop(2, 3)) == "0.0 1.0 0.1 1.1 0.2 1.2");
  CHECK(Layout(Placement::V(3)) == "0.0 1.0 2.0 2.1 1.1 0.1");
  CHECK(Layout(Placement::Wave(2, 4)) == "0.0 1.0 1.1 0.1 0.2 1.2 1.3 0.3");
  const auto list = Placement::FromList(2, {1, 1, 0, 0});
  REQUIRE(list.ok());
  CHECK(Layout(*list) == "1.0 1.1 0.0 0.1");
}

TEST_CASE("placement: replica b is the mirror of replica a", "[schedule]") {
  CHECK(Layout(Placement::Plain(3), 1) == "2.0 1.0 0.0");
  CHECK(Layout(Placement::V(2), 1) == "1.0 0.0 0.1 1.1");
}

TEST_CASE("placement: names and lists as text", "[schedule]") {
  CHECK(Placement::Plain(2).ToString() == "plain");
  CHECK(Placement::Loop(2, 1).ToString() == "loop");
  CHECK(Placement::V(2).ToString() == "v");
  CHECK(Placement::Wave(2, 2).ToString() == "wave");
  CHECK(Placement::FromList(2, {0, 1, 1, 0})->ToString() == "0 1 1 0");
}

TEST_CASE("placement: a list must use every rank alike", "[schedule]") {
  CHECK(Placement::FromList(2, {0, 0, 0, 1}).status().message() ==
        "placement: 3 stages on rank 0 is not allowed; allowed: 2 on every "
        "rank");
  CHECK(Placement::FromList(2, {0, 2}).status().message() ==
        "placement: rank 2 of stage 1 is not allowed; allowed: 0..1");
  CHECK(Placement::FromList(2, {0, 1, 0}).status().message() ==
        "placement: 3 stages is not allowed; allowed: a multiple of pp 2");
}

}  // namespace
}  // namespace pipewright::placement_test
