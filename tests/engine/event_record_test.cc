// What an EventRun counts and tells, each part of it alone.
#include "sim/engine/event_record.h"

#include <catch2/catch.hpp>
#include <vector>

#include "sim/trace/trace.h"
#include "tests/support/event_calls.h"
#include "tests/support/lowering.h"

namespace pipewright::event_record_test {
namespace {

Program Passes(int iterations = 1, int replicas = 1) {
  const auto schedule = Registered("gpipe", 2, 2);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.iterations = iterations;
  options.replicas = replicas;
  return Lowered(schedule, options);
}

TEST_CASE("event timers: a code is kind, index and version", "[engine]") {
  EventCalls calls;
  const uint32_t last = ~uint32_t{0};
  calls.timers.At(2, EventKind::kExchange, last, 5);
  calls.timers.At(3, EventKind::kComputeEnd, 0, uint32_t{1} << 28 | 7);
  REQUIRE(calls.set.size() == 2);
  CHECK(calls.set[0].date_s == 2);
  CHECK(calls.set[0].kind() == EventKind::kExchange);
  CHECK(calls.set[0].index() == last);
  CHECK(calls.set[0].version() == 5);
  // A version that does not fit is compared as far as it does.
  CHECK(calls.set[1].kind() == EventKind::kComputeEnd);
  CHECK(EventTimers::IsVersion(uint32_t{1} << 28 | 7, calls.set[1].version()));
  CHECK_FALSE(EventTimers::IsVersion(8, calls.set[1].version()));
}

TEST_CASE("event timers: all that is set comes back, until the stop",
          "[engine]") {
  EventCalls calls;
  calls.timers.At(1, EventKind::kStreamEnd, 0);
  calls.timers.StartFlow(3, 100, 1, 9);
  CHECK(calls.timers.outstanding() == 2);
  CHECK(calls.flows[0].transfer == 9);
  CHECK(calls.timers.Take());
  calls.timers.Stop();
  CHECK(calls.stopped);
  CHECK_FALSE(calls.timers.Take());
  CHECK(calls.timers.outstanding() == 0);
  CHECK(calls.timers.timers() == 1);
  CHECK(calls.timers.flows() == 1);
}

TEST_CASE("event record: a trace comes when its iteration is over",
          "[engine]") {
  const Program program = Passes();
  FullTrace trace;
  EventRecord record(program, &trace, nullptr);
  const Pass* const passes = program.ranks[1].order->data();
  record.OnBlock({.rank = 1,
                  .iteration = 1,
                  .passes = passes,
                  .start_s = 9,
                  .end_s = 10,
                  .alone_s = {1}});
  record.OnBlock(
      {.rank = 1, .passes = passes, .start_s = 2, .end_s = 3, .alone_s = {1}});
  CHECK(trace.ops().empty());
  record.EndIteration(0);
  REQUIRE(trace.ops().size() == 1);
  CHECK(trace.ops()[0].start_s == 2);
  record.EndIteration(1);
  CHECK(trace.ops().size() == 2);
}

TEST_CASE("event record: times of a rank are those of the first iteration",
          "[engine]") {
  const Program program = Passes();
  EventRecord record(program, nullptr, nullptr);
  CHECK(record.Trace(0, 0) == nullptr);
  const Pass* const passes = program.ranks[0].order->data();
  EventRecord::Block block = {.passes = passes, .alone_s = {1}};
  for (const double start_s : {2.0, 5.0}) {
    block.start_s = start_s;
    block.end_s = start_s + 2;
    block.stretched = start_s > 2;  // longer than the second that it takes
    record.OnBlock(block);
  }
  block.iteration = 1;
  block.end_s = 100;
  record.OnBlock(block);
  record.OnCopyWait(0, 0, 0, passes[0], 1, 1.5);
  record.OnCopyWait(0, 0, 1, passes[0], 1, 1.5);
  const RankTimes& times = record.times()[0][0];
  CHECK(times.first_start_s == 2);
  CHECK(times.last_end_s == 7);
  CHECK(times.busy_s == 2);
  CHECK(times.late_load_s == 0.5);
  CHECK(record.times()[0][1].last_end_s == 0);
}

TEST_CASE("iteration ends: the last operation ends one, enough of them the run",
          "[engine]") {
  const Program program = Passes(2);
  EventCalls calls;
  EventRecord record(program, nullptr, nullptr);
  IterationEnds ends(program, /*shares=*/false, /*pools=*/false, &record,
                     &calls.timers);
  CHECK(ends.issued() == 2);
  ends.Begin(0);  // an operation beside the two ranks
  ends.NoteEnd(0, 4);
  ends.NoteEnd(0, 3);
  for (const int rank : {0, 1}) {
    ends.EndDevice(0, rank, 3);
    ends.End(0);
  }
  CHECK(ends.ends_s().empty());
  ends.End(0);
  CHECK(ends.ends_s() == std::vector<double>{4});
  CHECK_FALSE(calls.stopped);
  for (const int rank : {0, 1}) {
    ends.NoteEnd(1, 8);
    ends.EndDevice(1, rank, 8);
    ends.End(1);
  }
  CHECK(ends.ends_s() == std::vector<double>{4, 8});
  CHECK(calls.stopped);
}

TEST_CASE("iteration ends: on shared links one more is begun", "[engine]") {
  EventCalls calls;
  const Program program = Passes(3);
  EventRecord record(program, nullptr, nullptr);
  const IterationEnds shared(program, true, false, &record, &calls.timers);
  CHECK(shared.issued() == 4);
  const Program once = Passes(1);
  const IterationEnds single(once, true, false, &record, &calls.timers);
  CHECK(single.issued() == 1);
}

}  // namespace
}  // namespace pipewright::event_record_test
