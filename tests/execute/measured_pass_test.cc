// What a rank measures of its passes: seconds on the way to the step, bytes at
// their highest.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "execute/train/model_worker.h"
#include "execute/train/training.h"
#include "sim/schedule/text.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/small_training.h"

namespace pipewright::measured_pass_test {
namespace {

using testing::FakeKernels;
using testing::MakeSmallTraining;
using testing::SmallTraining;

// Every pass and step measures 7 ms: 1F1B takes m + p - 1 times F and BW.
TEST_CASE("execute: measured seconds are those of the step", "[execute]") {
  constexpr double kPass_s = 7e-3;
  constexpr int kRanks = 2;
  constexpr int kMicrobatches = 2 * kRanks;
  SmallTraining training =
      MakeSmallTraining("1f1b", kRanks, 1, WaitRule::kBuffered).value();
  training.options.check = false;
  training.options.worker.snapshot_iterations.clear();
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(training.program, training.model,
                   FakeKernels({.seconds = kPass_s}), training.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  const RunSummary& summary = trained->run.summary;
  REQUIRE(summary.times[0].size() == kRanks);
  for (const RankTimes& rank : summary.times[0]) {
    CHECK(rank.busy_s == Approx(2 * kMicrobatches * kPass_s).epsilon(1e-12));
  }
  const double span_s = 2 * (kMicrobatches + kRanks - 1) * kPass_s;
  CHECK(summary.times[0][0].span_s() == Approx(span_s).epsilon(1e-12));
  // The optimizer's step is one more.
  CHECK(summary.iteration_end_s[0] == Approx(span_s + kPass_s).epsilon(1e-12));
}

// The bytes of each pass of `order` on one rank that has the whole model.
std::vector<PassBytes> BytesOf(const std::string& order, bool recompute,
                               size_t* peak_bytes) {
  SmallTraining training =
      MakeSmallTraining("1f1b", 1, 1, WaitRule::kBuffered).value();
  training.model.recompute = recompute;
  const absl::StatusOr<Schedule> schedule = ParseSchedule(
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n0: " + order + "\n",
      "f");
  REQUIRE(schedule.ok());
  WorkerRecord record;
  training.options.worker.record = &record;
  absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
      ModelWorker::Create(training.program, {}, training.model,
                          pw_cpu_kernels(), 0, training.options.worker);
  REQUIRE(worker.ok());
  REQUIRE((*worker)->BeginStart({}).ok());
  for (const Pass pass : schedule->order(0)) {
    (*worker)->BeginBlock(&pass, 1);
    REQUIRE((*worker)->RunPass(pass, 0).ok());
    (*worker)->EndBlock(&pass, 1);
  }
  worker->reset();
  *peak_bytes = record.peak_bytes;
  return record.memory;
}

// With an R of its own what a backward makes again stands in between; without
// one it comes and goes within the backward.
TEST_CASE("execute: a pass's peak is that inside of it", "[execute]") {
  size_t apart_peak = 0;
  const std::vector<PassBytes> apart =
      BytesOf("F0 R0 BW0 F1 R1 BW1", true, &apart_peak);
  size_t inside_peak = 0;
  const std::vector<PassBytes> inside =
      BytesOf("F0 BW0 F1 BW1", true, &inside_peak);
  REQUIRE(apart.size() == 6);
  REQUIRE(inside.size() == 4);
  for (const int microbatch : {0, 1}) {
    const double before = apart[3 * microbatch].after;
    const double made = apart[3 * microbatch + 1].after - before;
    REQUIRE(made > 0);
    const PassBytes& backward = inside[2 * microbatch + 1];
    CHECK(inside[2 * microbatch].after == before);
    CHECK(backward.after <= before);
    CHECK(backward.peak >= before + made);
    for (const PassBytes& pass : inside) CHECK(pass.peak >= pass.after);
  }
  double highest = 0;
  for (const PassBytes& pass : inside) highest = std::max(highest, pass.peak);
  CHECK(static_cast<double>(inside_peak) == highest);
}

}  // namespace
}  // namespace pipewright::measured_pass_test
