#include "tests/support/compared_runs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_threads.h"
#include "sim/engine/fast_engine.h"
#include "sim/schedule/registry.h"
#include "sim/trace/export.h"

namespace pipewright::testing {
namespace {

// Takes what the program says, each pass a little more or less.
class JitterWorker : public FixedWorker {
 public:
  JitterWorker(const Program& program, Address self, double jitter)
      : program_(program),
        self_(self),
        random_(self.replica * 1000 + self.rank + 1),
        noise_(0, jitter) {}
  absl::StatusOr<double> RunPass(Pass pass, int) override {
    const DpClass& own = program_.OfReplica(self_.replica);
    return own.ranks[self_.rank].lanes[pass.lane()].seconds *
           own.Factor(self_.rank, pass) * std::max(0.5, 1 + noise_(random_));
  }

 private:
  const Program& program_;
  const Address self_;
  std::mt19937 random_;
  std::normal_distribution<double> noise_;
};

}  // namespace

Program ComparedProgram(const ComparedShape& shape) {
  const ScheduleInfo* const info = FindSchedule(shape.schedule)->info;
  ScheduleParams params;
  params.pp = shape.pp;
  params.vpp = info->default_vpp;
  params.microbatches = shape.microbatches;
  absl::StatusOr<Schedule> built = BuildSchedule(shape.schedule, params);
  INFO(built.status());
  REQUIRE(built.ok());
  return ComparedProgram(shape, *std::move(built));
}

Program ComparedProgram(const ComparedShape& shape, Schedule built) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(built.pp(), built.vpp(),
                                     {.forward_s = 0.010,
                                      .backward_input_s = 0.012,
                                      .backward_weight_s = 0.008,
                                      .offload_s = 0.030,
                                      .load_s = 0.030});
  options.network.hop_s = 0.001;
  options.wait_rule = shape.wait_rule;
  options.optimizer = shape.optimizer;
  options.replicas = shape.replicas;
  if (shape.replicas > 1) options.data_parallel = shape.data_parallel;
  options.gradient_bytes.assign(built.stages(), 1e6);
  options.parameter_bytes.assign(built.stages(), 1e6);
  options.iterations = kComparedIterations;
  absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(std::move(built)), options);
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

ReadTrace SimulatedTrace(const Program& program) {
  FullTrace trace;
  REQUIRE(RunFast(program, {.trace = &trace}).ok());
  return ReadBack(ChromeTraceJson(program, trace.ops()), "sim.json");
}

ReadTrace MeasuredTrace(const Program& program, const Faults& faults,
                        double jitter) {
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
                              const ReadTrace& measured, int iteration) {
  const absl::StatusOr<PairedRun> run = PairRuns(simulated, measured);
  INFO(run.status());
  REQUIRE(run.ok());
  const absl::StatusOr<TraceComparison> comparison =
      Compare(*run, simulated, measured, iteration);
  INFO(comparison.status());
  REQUIRE(comparison.ok());
  return *comparison;
}

std::string ComparisonTexts(const TraceComparison& comparison) {
  std::vector<std::string> texts;
  for (const Finding& finding : comparison.findings.list) {
    texts.push_back(finding.text);
  }
  for (const Difference& difference : comparison.differences) {
    texts.push_back(absl::StrCat(difference.cause, " ", difference.kind, " ",
                                 difference.seconds));
  }
  return absl::StrJoin(texts, "\n");
}

Program WithSlower(const Program& program, std::optional<PassKind> kind,
                   int rank, double factor) {
  Program slower = program;
  for (int each = 0; each < slower.pp(); ++each) {
    if (rank >= 0 && rank != each) continue;
    std::vector<Lane>& lanes = slower.ranks[each].lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const auto own = Pass::KindOf(lane);
      if (kind ? *kind == own : IsComputePass(own)) {
        lanes[lane].seconds *= factor;
      }
    }
  }
  return slower;
}

}  // namespace pipewright::testing
