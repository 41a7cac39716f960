#include "sim/schedule/schedule.h"

#include <catch2/catch.hpp>

#include "sim/schedule/text.h"

namespace pipewright::schedule_test {

TEST_CASE("schedule: has a kind that stands on any rank", "[schedule]") {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 1 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 L0 BW0\n"
      "1: F0 R0 B0 W0\n",
      "file");
  REQUIRE(schedule.ok());
  CHECK(HasKind(schedule->order(0), PassKind::kBackwardFull));
  CHECK_FALSE(HasKind(schedule->order(1), PassKind::kBackwardFull));
  for (const PassKind kind :
       {PassKind::kForward, PassKind::kBackwardInput, PassKind::kBackwardWeight,
        PassKind::kBackwardFull, PassKind::kRecompute, PassKind::kOffload,
        PassKind::kLoad}) {
    INFO(PassKindName(kind));
    CHECK(schedule->Has(kind));
  }
  CHECK_FALSE(schedule->Has(PassKind::kSync));
}

}  // namespace pipewright::schedule_test
