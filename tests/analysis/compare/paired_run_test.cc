// Which operations of two runs belong together.
#include "sim/analysis/compare/paired_run.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/compared_runs.h"

namespace pipewright::paired_run_test {
namespace {

using testing::ComparedProgram;
using testing::kComparedIterations;
using testing::SimulatedTrace;

// Passes of the last iteration from `first_s` on are not in the trace.
ReadTrace CutOff(ReadTrace trace, double first_s) {
  trace.ops.erase(std::remove_if(trace.ops.begin(), trace.ops.end(),
                                 [&](const ReadOp& read) {
                                   return read.op.iteration + 1 ==
                                              kComparedIterations &&
                                          read.op.start_s >= first_s;
                                 }),
                  trace.ops.end());
  return trace;
}

double MiddleOfLastIteration(const ReadTrace& trace) {
  double first_s = 1e300;
  double last_s = 0;
  for (const ReadOp& read : trace.ops) {
    if (read.op.iteration + 1 != kComparedIterations) continue;
    first_s = std::min(first_s, read.op.start_s);
    last_s = std::max(last_s, read.op.end_s);
  }
  return (first_s + last_s) / 2;
}

TEST_CASE("paired run: an iteration in which a trace was cut off is left out",
          "[compare]") {
  const ReadTrace whole = SimulatedTrace(ComparedProgram({}));
  const ReadTrace cut = CutOff(whole, MiddleOfLastIteration(whole));
  REQUIRE(cut.ops.size() < whole.ops.size());
  const auto both = PairRuns(whole, whole);
  REQUIRE(both.ok());
  CHECK(both->iterations == kComparedIterations);
  for (const bool swapped : {false, true}) {
    const auto pair = swapped ? PairRuns(cut, whole) : PairRuns(whole, cut);
    INFO(pair.status());
    REQUIRE(pair.ok());
    CHECK(pair->iterations == kComparedIterations - 1);
    for (const PairedOp& op : pair->ops) {
      CHECK(op.op.iteration + 1 < kComparedIterations);
    }
  }
}

// A trace may say when each member came. The one that came first waited.
TEST_CASE("paired run: a collective begins when its last member has come",
          "[compare]") {
  // Two ranks reduce the stages of its two directions together.
  const ReadTrace whole =
      SimulatedTrace(ComparedProgram({.schedule = "chimera"}));
  ReadTrace early = whole;
  int moved = 0;
  for (ReadOp& read : early.ops) {
    if (read.group < 0 || read.op.rank != 0) continue;
    read.op.start_s -= 1e-3;
    ++moved;
  }
  REQUIRE(moved > 0);
  const auto as_it_was = PairRuns(whole, whole);
  const auto pair = PairRuns(whole, early);
  REQUIRE(as_it_was.ok());
  INFO(pair.status());
  REQUIRE(pair.ok());
  REQUIRE(pair->ops.size() == as_it_was->ops.size());
  int members = 0;
  for (size_t index = 0; index < pair->ops.size(); ++index) {
    const PairedOp& op = pair->ops[index];
    if (op.meeting < 0) continue;
    ++members;
    for (const Side side : {kSimulated, kMeasured}) {
      CHECK(op.start_s[side] ==
            Approx(as_it_was->ops[index].start_s[side]).epsilon(1e-12));
    }
  }
  CHECK(members >= 2 * moved);
}

}  // namespace
}  // namespace pipewright::paired_run_test
