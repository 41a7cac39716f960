// What has come to a rank: messages by pass, parts of meetings by member.
#include "execute/run/arrivals.h"

#include <catch2/catch.hpp>
#include <vector>

namespace pipewright::arrivals_test {
namespace {

TEST_CASE("Messages of a pass are used in the order in which they came") {
  Arrivals arrivals;
  CHECK_FALSE(arrivals.Has(3, 7));
  arrivals.Push(3, 7, {.start_s = 1, .time_s = 2});
  arrivals.Push(3, 7, {.start_s = 0, .time_s = 1});
  arrivals.Push(3, 8, {.start_s = 5, .time_s = 6});
  CHECK_FALSE(arrivals.Has(4, 7));
  CHECK(arrivals.TimeOf(3, 7) == 2);
  CHECK(arrivals.Pop(3, 7).start_s == 1);
  CHECK(arrivals.TimeOf(3, 7) == 1);
  CHECK(arrivals.Pop(3, 7).start_s == 0);
  CHECK_FALSE(arrivals.Has(3, 7));
  CHECK(arrivals.Pop(3, 8).time_s == 6);
}

TEST_CASE("A meeting gives its parts once all members have come") {
  const std::vector<std::vector<Address>> groups = {
      {{.replica = 0, .rank = 1}},
      {{.replica = 0, .rank = 0},
       {.replica = 1, .rank = 0},
       {.replica = 2, .rank = 0}}};
  Meetings meetings(groups, {1, 0});
  CHECK(meetings.self(0) == -1);
  CHECK(meetings.self(1) == 1);
  CHECK(meetings.Begin(1) == 1);
  CHECK(meetings.Begin(1) == 2);
  CHECK(meetings.Begin(0) == 1);

  CHECK(meetings.TakeParts(1, 1).empty());
  meetings.Arrive(1, 1, {2, 0}, {.time_s = 3, .bytes = 30});
  meetings.Arrive(1, 1, {1, 0}, {.time_s = 2, .bytes = 20});
  // Neither another meeting, nor who is no member, completes this one.
  meetings.Arrive(1, 2, {0, 0}, {.time_s = 9});
  meetings.Arrive(1, 1, {0, 1}, {.time_s = 9});
  CHECK(meetings.TakeParts(1, 1).empty());
  meetings.Arrive(1, 1, {0, 0}, {.time_s = 1, .bytes = 10});
  const std::vector<Meetings::Part> parts = meetings.TakeParts(1, 1);
  REQUIRE(parts.size() == 3);
  for (int member = 0; member < 3; ++member) {
    CHECK(parts[member].time_s == member + 1);
    CHECK(parts[member].bytes == 10 * static_cast<size_t>(member + 1));
  }
  CHECK(meetings.TakeParts(1, 1).empty());
}

}  // namespace
}  // namespace pipewright::arrivals_test
