// Devices that run ahead of the clock against devices whose every pass ends by
// an event: same times, same operations.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/engine/fluid_clock.h"
#include "sim/trace/trace.h"
#include "tests/support/random_program.h"

namespace pipewright::run_ahead_test {
namespace {

using Row = std::tuple<int, int, int, int, double, double>;

// By what they are and when they run: the order of equal times is free.
std::vector<Row> Sorted(const FullTrace& trace) {
  std::vector<Row> rows;
  for (const TraceOp& op : trace.ops()) {
    rows.emplace_back(op.iteration, op.replica, op.rank,
                      static_cast<int>(op.kind), op.start_s, op.end_s);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

// But for rounding: a flow whose rate changes at another event ends by another
// sum.
bool Same(const std::vector<Row>& some, const std::vector<Row>& others) {
  const auto near = [](double one, double other) {
    return std::abs(one - other) <= 1e-12 * std::max(1.0, std::abs(other));
  };
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [&](const Row& one, const Row& other) {
                      return std::get<0>(one) == std::get<0>(other) &&
                             std::get<1>(one) == std::get<1>(other) &&
                             std::get<2>(one) == std::get<2>(other) &&
                             std::get<3>(one) == std::get<3>(other) &&
                             near(std::get<4>(one), std::get<4>(other)) &&
                             near(std::get<5>(one), std::get<5>(other));
                    });
}

TEST_CASE("events: a device that runs ahead of the clock has the same times",
          "[engine]") {
  int compared = 0;
  int fewer = 0;
  int flows = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(
        seed, {.most_classes = 1 + static_cast<int>(seed % 2)});
    if (!made.ok()) continue;
    INFO(made->about);
    Program& program = made->program;
    if (seed % 3 != 0) {
      auto jitter = std::make_shared<Jitter>();
      jitter->seed = seed;
      jitter->sigma = 0.2;
      program.jitter = jitter;
    }
    FullTrace ahead_trace;
    FullTrace behind_trace;
    const auto ahead =
        RunOnFluidClock(program, {.trace = &ahead_trace, .run_ahead = true});
    const auto behind =
        RunOnFluidClock(program, {.trace = &behind_trace, .run_ahead = false});
    REQUIRE(ahead.ok() == behind.ok());
    if (!ahead.ok()) continue;
    CHECK(ahead->iteration_end_s == behind->iteration_end_s);
    CHECK(Same(Sorted(ahead_trace), Sorted(behind_trace)));
    REQUIRE(ahead->times.size() == behind->times.size());
    for (size_t replica = 0; replica < ahead->times.size(); ++replica) {
      for (size_t rank = 0; rank < ahead->times[replica].size(); ++rank) {
        const RankTimes& mine = ahead->times[replica][rank];
        const RankTimes& theirs = behind->times[replica][rank];
        CHECK(mine.first_start_s == theirs.first_start_s);
        CHECK(mine.last_end_s == theirs.last_end_s);
        CHECK(mine.busy_s == theirs.busy_s);
      }
    }
    ++compared;
    fewer += ahead->timers < behind->timers ? 1 : 0;
    flows += ahead->flows > 0 ? 1 : 0;
  }
  CHECK(compared > 300);
  CHECK(fewer > 100);
  CHECK(flows > 30);
}

}  // namespace
}  // namespace pipewright::run_ahead_test
