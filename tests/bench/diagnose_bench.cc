// Reading and diagnosing a measured job: 40 steps of 64 workers, every kind,
// stage, replica and worker tried.
#include <benchmark/benchmark.h>

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/read_table.h"
#include "sim/base/check.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

constexpr int kStages = 4;
constexpr int kReplicas = 16;
constexpr int kMicrobatches = 12;
constexpr int kSteps = 40;

// GPipe with times that differ by a rule.
std::string BenchTable() {
  std::string out =
      "step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns\n";
  for (int step = 0; step < kSteps; ++step) {
    for (int replica = 0; replica < kReplicas; ++replica) {
      for (int stage = 0; stage < kStages; ++stage) {
        int64_t now = 0;
        const auto run = [&](const char* type, int number) {
          const int64_t length =
              1'000'000 + 1000 * ((step + 3 * replica + 5 * number) % 97);
          absl::StrAppend(&out, step, ",", replica, ",", stage, ",", type, ",",
                          number, ",-1,-1,", now, ",", length, "\n");
          now += length;
        };
        for (int each = 0; each < kMicrobatches; ++each) {
          if (stage > 0) run("forward-recv", each);
          run("forward-compute", each);
          if (stage + 1 < kStages) run("forward-send", each);
        }
        for (int each = 0; each < kMicrobatches; ++each) {
          if (stage + 1 < kStages) run("backward-recv", each);
          run("backward-compute", each);
          if (stage > 0) run("backward-send", each);
        }
        run("grads-reduce-scatter", 0);
        run("optimizer", 0);
      }
    }
  }
  return out;
}

MeasuredJob BenchJob(const std::string& table) {
  std::istringstream in(table);
  auto job = ReadJobTable(in, "bench.csv");
  PW_CHECK(job.ok());
  return *std::move(job);
}

void BM_ReadJobTable(benchmark::State& state) {
  const std::string table = BenchTable();
  Headline(state,
           [&] { return static_cast<double>(BenchJob(table).num_ops()); });
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(table.size()));
}
BENCHMARK(BM_ReadJobTable)->Unit(benchmark::kMillisecond);

void BM_Diagnose(benchmark::State& state) {
  const MeasuredJob job = BenchJob(BenchTable());
  Headline(state, [&] {
    benchmark::DoNotOptimize(Diagnose(job, ComputeIdeal::kMean).ideal_s);
    return static_cast<double>(job.num_ops());
  });
  state.counters["operations"] = static_cast<double>(job.start_s.size());
}
BENCHMARK(BM_Diagnose)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
