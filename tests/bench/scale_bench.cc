// experiments/scale/w1.yaml: thousands of devices that share cards, switches
// and PCIe, no device folded into another.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <iterator>
#include <string>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/config/prepare.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

struct ScaleCase {
  const char* label;
  int replicas;
  const char* mapping;
  const char* jitter;
  const char* hop_bytes;
  bool simgrid;
};

// tests/CMakeLists.txt (bench.once) names two of them by their index.
const ScaleCase kScaleCases[] = {
    {"64 devices", 4, "dp-pp", "none", "16MiB", false},
    {"256", 16, "dp-pp", "none", "16MiB", false},
    {"1024", 64, "dp-pp", "none", "16MiB", false},
    {"4096", 256, "dp-pp", "none", "16MiB", false},
    {"16384", 1024, "dp-pp", "none", "16MiB", false},
    {"64, jitter", 4, "dp-pp", "uniform:5%", "16MiB", false},
    {"256, jitter", 16, "dp-pp", "uniform:5%", "16MiB", false},
    {"1024, jitter", 64, "dp-pp", "uniform:5%", "16MiB", false},
    {"4096, jitter", 256, "dp-pp", "uniform:5%", "16MiB", false},
    {"16384, jitter", 1024, "dp-pp", "uniform:5%", "16MiB", false},
    {"4096, pipe-major", 256, "pp-dp", "none", "16MiB", false},
    {"4096, pipe-major, jitter", 256, "pp-dp", "uniform:5%", "16MiB", false},
    {"1024, simgrid", 64, "dp-pp", "none", "16MiB", true},
    {"256, simgrid", 16, "dp-pp", "none", "16MiB", true},
    {"1024, heavy, jitter", 64, "dp-pp", "uniform:5%", "100MB", false},
    {"4096, heavy, jitter", 256, "dp-pp", "uniform:5%", "100MB", false},
};

Program ScaleProgram(const ScaleCase& each) {
  const std::string path =
      std::string(PIPEWRIGHT_SOURCE_DIR) + "/experiments/scale/w1.yaml";
  const absl::StatusOr<std::string> text = ReadFile(path);
  PW_CHECK(text.ok());
  absl::StatusOr<RunConfig> config = ReadConfig(*text, path);
  PW_CHECK(config.ok());
  config->strategy.dp = each.replicas;
  config->system.nodes = 2 * each.replicas;
  config->strategy.mapping = {each.mapping};
  config->costs.jitter = each.jitter;
  config->costs.hop_bytes =
      std::string(each.hop_bytes) == "100MB" ? 100e6 : 16.0 * (1 << 20);
  const absl::StatusOr<PreparedRun> prepared = Prepare(*config);
  PW_CHECK(prepared.ok());
  absl::StatusOr<Program> program = LowerRun(*prepared);
  PW_CHECK(program.ok());
  return *std::move(program);
}

void BM_W1(benchmark::State& state) {
  const ScaleCase& each = kScaleCases[state.range(0)];
  const Program program = ScaleProgram(each);
  RunSummary run;
  Headline(state, [&] {
    run = (each.simgrid ? RunSimgrid(program, {})
                        : TryOnFluidClock(program, {}, {.folds = false}))
              .value();
    return static_cast<double>(run.flows + run.timers);
  });
  rusage usage;
  getrusage(each.simgrid ? RUSAGE_CHILDREN : RUSAGE_SELF, &usage);
  state.SetLabel(each.label);
  state.counters["flows"] = static_cast<double>(run.flows);
  state.counters["timers"] = static_cast<double>(run.timers);
  state.counters["most_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_W1)
    ->DenseRange(0, static_cast<int>(std::size(kScaleCases)) - 1)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pipewright
