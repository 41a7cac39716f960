// How long the zero-bubble planners take with what follows them: generate,
// verify, replay. 28.3B costs of the zero-bubble paper (arXiv 2401.10241,
// table 6), milliseconds.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/base/check.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

struct Planner {
  const char* label;
  const char* schedule;
  int vpp;
  double limit;  // in pp microbatches
  std::map<std::string, std::string> own;
};

const Planner kPlanners[] = {
    {"zb-auto at 1p", "zb-auto", 1, 1, {{"search", "limit"}}},
    {"zb-auto at 1.5p", "zb-auto", 1, 1.5, {{"search", "limit"}}},
    {"zb-auto at 2p", "zb-auto", 1, 2, {{"search", "limit"}}},
    {"zb-auto to 1.5p", "zb-auto", 1, 1.5, {}},
    {"zb-auto to 3p", "zb-auto", 1, 3, {}},
    {"zb-v automatic", "zb-v", 2, 1, {}},
    {"zb-v handcrafted", "zb-v", 2, 1, {{"variant", "handcrafted"}}},
};

void BM_Planner(benchmark::State& state) {
  const Planner& planner = kPlanners[state.range(0)];
  ScheduleParams params;
  params.pp = static_cast<int>(state.range(1));
  params.vpp = planner.vpp;
  params.microbatches = 4 * params.pp;
  params.costs = {.forward = 10.419,
                  .backward_input = 10.207,
                  .backward_weight = 7.715,
                  .hop = 0.408,
                  // 32h / (34h + 5as), h 6144, a 48, s 1024
                  .held_until_weight = 0.43243,
                  .given = true};
  params.max_activations = planner.limit * params.pp;
  params.own = planner.own;
  double bubble = 0;
  Headline(state, [&] {
    const auto schedule = BuildSchedule(planner.schedule, params);
    PW_CHECK(schedule.ok());
    PW_CHECK(VerifySchedule(*schedule).ok());
    const auto times = Replay(*schedule, params.costs);
    PW_CHECK(times.ok());
    bubble =
        1 - params.microbatches * params.costs.work() / times->span_per_rank;
    return static_cast<double>(times->visits);
  });
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  state.SetLabel(planner.label);
  state.counters["bubble"] = bubble;
  state.counters["process_peak_MB"] =
      static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_Planner)
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6}, {32, 128}})
    ->ArgNames({"planner", "ranks"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
