// What is wrong in the executor only is named with its size: the measured
// trace is the executor's, the simulated one the engine's, and nothing but the
// two files passes between them.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "execute/fixed_worker.h"
#include "execute/run_threads.h"
#include "sim/compare/comparison.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "sim/trace/export.h"

namespace pipewright {
namespace {

constexpr int kIterations = 3;

struct Shape {
  const char* schedule = "1f1b";
  int pp = 4;
  int microbatches = 8;
  WaitRule wait_rule = WaitRule::kBuffered;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  int replicas = 1;
  DataParallel data_parallel = DataParallel::kDdp;  // with several replicas
};

Program MakeProgram(const Shape& shape) {
  const ScheduleInfo* const info = FindSchedule(shape.schedule)->info;
  ScheduleParams params;
  params.pp = shape.pp;
  params.vpp = info->default_vpp;
  params.microbatches = shape.microbatches;
  absl::StatusOr<Schedule> built = BuildSchedule(shape.schedule, params);
  INFO(built.status());
  REQUIRE(built.ok());
  LowerOptions options;
  options.costs = PassCosts::Uniform(shape.pp, built->vpp(),
                                     {.forward_s = 0.010,
                                      .backward_input_s = 0.012,
                                      .backward_weight_s = 0.008});
  options.network.hop_s = 0.001;
  options.wait_rule = shape.wait_rule;
  options.optimizer = shape.optimizer;
  options.replicas = shape.replicas;
  if (shape.replicas > 1) options.data_parallel = shape.data_parallel;
  options.gradient_bytes.assign(built->stages(), 1e6);
  options.parameter_bytes.assign(built->stages(), 1e6);
  options.iterations = kIterations;
  absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(*std::move(built)), options);
  INFO(program.status());
  REQUIRE(program.ok());
  program->until_steady = false;
  return *std::move(program);
}

ReadTrace ReadBack(const std::string& json, const std::string& name) {
  std::istringstream in(json);
  absl::StatusOr<ReadTrace> read = ReadChromeTrace(in, name);
  INFO(read.status());
  REQUIRE(read.ok());
  return *std::move(read);
}

ReadTrace Simulated(const Program& program) {
  FullTrace trace;
  REQUIRE(RunFast(program, {.trace = &trace}).ok());
  return ReadBack(ChromeTraceJson(program, trace.ops()), "sim.json");
}

// Takes what the program says, each pass a little more or less.
class JitterWorker : public FixedWorker {
 public:
  JitterWorker(const Program& program, Address self, double jitter)
      : program_(program),
        self_(self),
        random_(self.replica * 1000 + self.rank + 1),
        noise_(0, jitter) {}
  absl::StatusOr<double> RunPass(Pass pass, int) override {
    return program_.ranks[self_.rank].lanes[pass.lane()].seconds *
           program_.factor(pass) * std::max(0.5, 1 + noise_(random_));
  }

 private:
  const Program& program_;
  const Address self_;
  std::mt19937 random_;
  std::normal_distribution<double> noise_;
};

ReadTrace Measured(const Program& program, const Faults& faults,
                   double jitter = 0) {
  const MakeWorker make =
      [&](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
    if (jitter == 0) return std::make_unique<FixedWorker>();
    return std::make_unique<JitterWorker>(program, self, jitter);
  };
  const absl::StatusOr<ExecutedRun> run =
      RunThreads(program, make,
                 {.takes_given = jitter == 0, .trace = true, .faults = faults});
  INFO(run.status());
  REQUIRE(run.ok());
  return ReadBack(ChromeTraceJson(program, run->ops), "measured.json");
}

TraceComparison CompareTraces(const ReadTrace& simulated,
                              const ReadTrace& measured, int iteration = -1) {
  const absl::StatusOr<PairedRun> run = PairRuns(simulated, measured);
  INFO(run.status());
  REQUIRE(run.ok());
  const absl::StatusOr<TraceComparison> comparison =
      Compare(*run, simulated, measured, iteration);
  INFO(comparison.status());
  REQUIRE(comparison.ok());
  return *comparison;
}

TraceComparison CompareWith(const Shape& shape, const Faults& faults,
                            double jitter = 0, int iteration = -1) {
  const Program program = MakeProgram(shape);
  return CompareTraces(Simulated(program), Measured(program, faults, jitter),
                       iteration);
}

std::string Texts(const TraceComparison& comparison) {
  std::vector<std::string> texts;
  for (const Finding& finding : comparison.findings) {
    texts.push_back(finding.text);
  }
  for (const Difference& difference : comparison.differences) {
    texts.push_back(absl::StrCat(difference.cause, " ", difference.kind, " ",
                                 difference.seconds));
  }
  return absl::StrJoin(texts, "\n");
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
      {.schedule = "gpipe", .wait_rule = WaitRule::kRendezvous},
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
      INFO(Texts(comparison));
      CHECK(comparison.findings.empty());
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
        INFO(Texts(comparison));
        REQUIRE(comparison.findings.size() == 1);
        const Finding& finding = comparison.findings[0];
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
      INFO(Texts(comparison));
      REQUIRE(comparison.findings.size() == 1);
      const Finding& finding = comparison.findings[0];
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
      INFO(Texts(comparison));
      REQUIRE(static_cast<int>(comparison.findings.size()) == shape.replicas);
      const Finding& finding = comparison.findings[0];
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

// Where messages hold their ranks, one side's word can come late without
// anybody noticing: the other side was later.
TEST_CASE("compare: names late messages that hold their ranks", "[compare]") {
  for (const Shape& shape : Shapes()) {
    if (shape.wait_rule == WaitRule::kBuffered) continue;
    int noticed = 0;
    int whole = 0;
    for (int number = 0; number < 12; ++number) {
      INFO(shape.schedule << " number " << number);
      const TraceComparison comparison =
          CompareWith(shape, LateMessage(number), 0, 1);
      INFO(Texts(comparison));
      CheckSum(comparison);
      if (std::abs(comparison.step_s.difference()) < 1e-8) continue;
      ++noticed;
      REQUIRE(comparison.findings.size() == 1);
      const Finding& finding = comparison.findings[0];
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
  INFO(Texts(comparison));
  CHECK(comparison.findings.size() == 3);
  CheckSum(comparison);
  int named = 0;
  for (const Finding& finding : comparison.findings) {
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

// Of a schedule that moves activations to the host and back.
Program WithCopies() {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 4 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 F1 F2 L0 BW0 F3 BW1 BW2 BW3\n"
      "1: F0 BW0 F1 BW1 F2 BW2 F3 BW3\n",
      "copies.txt");
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  LowerOptions options;
  options.costs = PassCosts::Uniform(2, 1,
                                     {.forward_s = 0.010,
                                      .backward_input_s = 0.012,
                                      .backward_weight_s = 0.008,
                                      .offload_s = 0.030,
                                      .load_s = 0.030});
  options.costs.optimizer_s = 0.020;
  options.network.hop_s = 0.001;
  options.optimizer = OptimizerMode::kSynchronised;
  options.iterations = kIterations;
  absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(*schedule), options);
  INFO(program.status());
  REQUIRE(program.ok());
  program->until_steady = false;
  return *std::move(program);
}

TEST_CASE("compare: names copies that are slower, and the optimizer",
          "[compare]") {
  const Program program = WithCopies();
  Program copies = program;
  Program optimizer = program;
  for (RankProgram& rank : copies.ranks) {
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      const auto kind = static_cast<PassKind>(lane % kNumPassKinds);
      if (kind == PassKind::kLoad) rank.lanes[lane].seconds *= 1.5;
    }
  }
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
    const TraceComparison comparison =
        CompareTraces(Simulated(program), Simulated(measured));
    INFO(Texts(comparison));
    CHECK(comparison.step_s.difference() > 5e-3);
    REQUIRE(comparison.findings.size() == 1);
    CHECK(comparison.findings[0].what == what);
    CHECK(comparison.findings[0].factor == Approx(1.5));
    CHECK(SecondsOf(comparison, cause) ==
          Approx(comparison.step_s.difference()).margin(1e-8));
    CheckSum(comparison);
  }
}

}  // namespace
}  // namespace pipewright
