// What is wrong in the executor only is named with its size: the measured
// trace is the executor's, the simulated one the engine's, and nothing but the
// two files passes between them.
#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "sim/schedule/text.h"
#include "tests/support/compared_runs.h"

namespace pipewright::faults_test {
namespace {

using Shape = testing::ComparedShape;
using testing::CompareTraces;

TraceComparison CompareWith(const Shape& shape, const Faults& faults,
                            double jitter = 0, int iteration = -1) {
  const Program program = testing::ComparedProgram(shape);
  return CompareTraces(testing::SimulatedTrace(program),
                       testing::MeasuredTrace(program, faults, jitter),
                       iteration);
}

double SecondsOf(const TraceComparison& comparison, const std::string& cause) {
  double sum = 0;
  for (const Difference& difference : comparison.differences) {
    if (difference.cause == cause) sum += difference.seconds;
  }
  return sum;
}

void CheckSum(const TraceComparison& comparison) {
  double sum = 0;
  for (const Difference& difference : comparison.differences) {
    sum += difference.seconds;
  }
  CHECK(sum == Approx(comparison.step_s.difference()).margin(1e-12));
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {},
      {.schedule = "zb-h1"},
      {.schedule = "gpipe", .optimizer = OptimizerMode::kNone},
      {.schedule = "interleaved-1f1b"},
      {.schedule = "zb-v", .optimizer = OptimizerMode::kPostValidated},
      {.schedule = "dualpipe", .microbatches = 16},
      {.schedule = "1f1b", .wait_rule = WaitRule::kBatched},
      {.schedule = "interleaved-1f1b", .wait_rule = WaitRule::kBatched},
      {.schedule = "gpipe", .wait_rule = WaitRule::kRendezvous},
      {.schedule = "interleaved-1f1b", .wait_rule = WaitRule::kStepped},
      {.schedule = "zb-h1", .replicas = 2},
      {.replicas = 2, .data_parallel = DataParallel::kFsdp},
      {.schedule = "gpipe",
       .replicas = 2,
       .data_parallel = DataParallel::kZero1},
      {.schedule = "bitpipe"},
      {.schedule = "seq1f1b"},
  };
  return shapes;
}

bool SplitsBackward(const Shape& shape) {
  return absl::StartsWith(shape.schedule, "zb");
}

TEST_CASE("compare: names nothing where nothing is wrong", "[compare]") {
  for (const Shape& shape : Shapes()) {
    for (const double jitter : {0.0, 0.03}) {
      INFO(shape.schedule << " jitter " << jitter);
      const TraceComparison comparison = CompareWith(shape, {}, jitter);
      INFO(testing::ComparisonTexts(comparison));
      CHECK(comparison.findings.list.empty());
      CheckSum(comparison);
      if (jitter == 0) {
        CHECK(comparison.step_s.difference() == Approx(0).margin(5e-9));
      } else {
        CHECK(comparison.step_s.difference() != 0);
      }
    }
  }
}

TEST_CASE("compare: names a kernel that is 30 % slower", "[compare]") {
  for (const Shape& shape : Shapes()) {
    const PassKind kind =
        SplitsBackward(shape) ? PassKind::kBackwardWeight : PassKind::kForward;
    for (const int rank : {-1, 2}) {
      for (const double jitter : {0.0, 0.03}) {
        INFO(shape.schedule << " rank " << rank << " jitter " << jitter);
        const TraceComparison comparison = CompareWith(
            shape,
            {.slow_passes = {{.kind = kind, .rank = rank, .factor = 1.3}}},
            jitter);
        INFO(testing::ComparisonTexts(comparison));
        REQUIRE(comparison.findings.list.size() == 1);
        const Finding& finding = comparison.findings.list[0];
        CHECK(finding.what == "kernel");
        CHECK(finding.label == PassKindName(kind));
        CHECK(finding.rank == rank);
        CHECK(finding.factor == Approx(1.3).epsilon(0.02));
        CheckSum(comparison);
        if (jitter > 0) continue;
        // Nothing else has changed: all of the difference is its own.
        CHECK(finding.effect_s ==
              Approx(comparison.step_s.difference()).margin(1e-8));
        CHECK(SecondsOf(comparison, "kernels") ==
              Approx(comparison.step_s.difference()).margin(1e-8));
      }
    }
  }
}

TEST_CASE("compare: names a rank that is 10 % slower", "[compare]") {
  for (const Shape& shape : Shapes()) {
    for (const double jitter : {0.0, 0.03}) {
      INFO(shape.schedule << " jitter " << jitter);
      const TraceComparison comparison = CompareWith(
          shape, {.slow_passes = {{.rank = 3, .factor = 1.1}}}, jitter);
      INFO(testing::ComparisonTexts(comparison));
      REQUIRE(comparison.findings.list.size() == 1);
      const Finding& finding = comparison.findings.list[0];
      CHECK(finding.what == "kernel");
      CHECK(finding.label.empty());
      CHECK(finding.rank == 3);
      CHECK(finding.factor == Approx(1.1).epsilon(0.02));
      CHECK(absl::StrContains(finding.text, "rank 3: all passes 1."));
      CheckSum(comparison);
    }
  }
}

Faults LateMessage(int number) {
  return {.late_messages = {
              {.rank = 1, .iteration = 1, .number = number, .seconds = 0.02}}};
}

TEST_CASE("compare: names a message that is late", "[compare]") {
  for (const Shape& shape : Shapes()) {
    if (shape.wait_rule != WaitRule::kBuffered) continue;
    for (const double jitter : {0.0, 0.03}) {
      INFO(shape.schedule << " jitter " << jitter);
      const TraceComparison comparison =
          CompareWith(shape, LateMessage(4), jitter, 1);
      INFO(testing::ComparisonTexts(comparison));
      REQUIRE(static_cast<int>(comparison.findings.list.size()) ==
              shape.replicas);
      const Finding& finding = comparison.findings.list[0];
      CHECK(finding.what == "message");
      CHECK(finding.rank == 1);
      CHECK(finding.iteration == 1);
      CHECK(finding.late_s == Approx(0.02).epsilon(0.02));
      CheckSum(comparison);
      if (jitter > 0 || shape.replicas > 1) continue;
      CHECK(finding.effect_s ==
            Approx(comparison.step_s.difference()).margin(1e-8));
      CHECK(SecondsOf(comparison, "transfers") ==
            Approx(comparison.step_s.difference()).margin(1e-8));
    }
  }
}

// If messages hold their ranks, one side's word can come late without anybody
// noticing: the other side was later.
TEST_CASE("compare: names late messages that hold their ranks", "[compare]") {
  for (const Shape& shape : Shapes()) {
    if (shape.wait_rule == WaitRule::kBuffered) continue;
    int noticed = 0;
    int whole = 0;
    for (int number = 0; number < 12; ++number) {
      INFO(shape.schedule << " number " << number);
      const TraceComparison comparison =
          CompareWith(shape, LateMessage(number), 0, 1);
      INFO(testing::ComparisonTexts(comparison));
      CheckSum(comparison);
      if (std::abs(comparison.step_s.difference()) < 1e-8) continue;
      ++noticed;
      REQUIRE(comparison.findings.list.size() == 1);
      const Finding& finding = comparison.findings.list[0];
      // The word of a receiver: its partner begins late.
      if (finding.what != "gap") {
        CHECK(finding.what == "message");
        CHECK((finding.rank == 1 || finding.peer == 1));
      }
      CHECK(finding.iteration == 1);
      CHECK(finding.late_s < 0.02 + 1e-8);
      if (finding.late_s > 0.02 * 0.98) ++whole;
    }
    CHECK(noticed >= 3);
    CHECK(whole >= 2);
  }
}

TEST_CASE("compare: names several causes at a time", "[compare]") {
  const TraceComparison comparison = CompareWith(
      {.schedule = "zb-h1"},
      {.slow_passes = {{.kind = PassKind::kBackwardInput, .factor = 1.3},
                       {.rank = 1, .factor = 1.1}},
       .late_messages =
           {{.rank = 2, .iteration = 2, .number = 3, .seconds = 0.05}}},
      0.03);
  INFO(testing::ComparisonTexts(comparison));
  CHECK(comparison.findings.list.size() == 3);
  CheckSum(comparison);
  int named = 0;
  for (const Finding& finding : comparison.findings.list) {
    if (finding.what == "message") {
      CHECK(finding.late_s == Approx(0.05).epsilon(0.02));
      CHECK(finding.rank == 2);
      named |= 1;
    } else if (finding.label == "B") {
      CHECK(finding.factor == Approx(1.3).epsilon(0.02));
      CHECK(finding.rank == -1);
      named |= 2;
    } else if (finding.label.empty()) {
      CHECK(finding.factor == Approx(1.1).epsilon(0.02));
      CHECK(finding.rank == 1);
      named |= 4;
    }
  }
  CHECK(named == 7);
}

// Program of a schedule that moves activations to the host and back.
Program CopyingProgram() {
  absl::StatusOr<Schedule> schedule = ParseSchedule(
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 4 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 F1 F2 L0 BW0 F3 BW1 BW2 BW3\n"
      "1: F0 BW0 F1 BW1 F2 BW2 F3 BW3\n",
      "copies.txt");
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  Program program = testing::ComparedProgram({}, *std::move(schedule));
  for (RankProgram& rank : program.ranks) {
    for (SideOp& op : rank.side_ops) {
      if (op.kind == OpKind::kOptimizer) op.seconds = 0.020;
    }
  }
  return program;
}

TEST_CASE("compare: names copies that are slower, and the optimizer",
          "[compare]") {
  const Program program = CopyingProgram();
  const Program copies = testing::WithSlower(program, PassKind::kLoad, -1, 1.5);
  Program optimizer = program;
  for (RankProgram& rank : optimizer.ranks) {
    for (SideOp& op : rank.side_ops) {
      if (op.kind == OpKind::kOptimizer) op.seconds *= 1.5;
    }
  }
  struct Case {
    const Program& measured;
    const char* what;
    const char* cause;
  };
  for (const auto& [measured, what, cause] :
       {Case{copies, "copy", "copies"},
        Case{optimizer, "optimizer", "optimizer"}}) {
    INFO(what);
    const TraceComparison comparison = CompareTraces(
        testing::SimulatedTrace(program), testing::SimulatedTrace(measured));
    INFO(testing::ComparisonTexts(comparison));
    CHECK(comparison.step_s.difference() > 5e-3);
    REQUIRE(comparison.findings.list.size() == 1);
    CHECK(comparison.findings.list[0].what == what);
    CHECK(comparison.findings.list[0].factor == Approx(1.5));
    CHECK(SecondsOf(comparison, cause) ==
          Approx(comparison.step_s.difference()).margin(1e-8));
    CheckSum(comparison);
  }
}

}  // namespace
}  // namespace pipewright::faults_test
