// The schedule of a run is built once, wherever its stages stand.
#include <catch2/catch.hpp>

#include "sim/config/prepare.h"
#include "sim/schedule/registry.h"

namespace pipewright::build_once_test {
namespace {

// How often Prepare builds a schedule; nothing where it refuses.
std::optional<int64_t> Builds(const RunConfig& config) {
  const int64_t before = NumBuiltSchedules();
  if (!Prepare(config).ok()) return {};
  return NumBuiltSchedules() - before;
}

TEST_CASE("prepare: every schedule is built once", "[config]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    int prepared = 0;
    for (const int vpp : {1, 2, 4}) {
      for (const bool model : {false, true}) {
        RunConfig config;
        config.schedule.name = info->name;
        config.strategy.pp = 4;
        config.strategy.vpp = vpp;
        config.strategy.microbatches = 8;
        config.only_order = true;
        if (model) {
          config.model.preset = "gpt-tiny";
          config.strategy.split = LayerSplit::kBalanced;
        }
        const std::optional<int64_t> builds = Builds(config);
        if (!builds) continue;
        ++prepared;
        INFO(info->name << ", vpp " << vpp << (model ? ", with a model" : ""));
        CHECK(*builds == 1);
      }
    }
    INFO(info->name);
    CHECK(prepared >= 2);
  }
}

}  // namespace
}  // namespace pipewright::build_once_test
