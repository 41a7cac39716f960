// The sizes of a run, and whether anything can be that large.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/config_values.h"
#include "sim/config/prepare_parts.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr int64_t kMaxStages = int64_t{1} << 20;
// Eight bytes each, so 16 GiB.
constexpr int64_t kMaxPasses = int64_t{1} << 31;

// The sizes of a schedule that is built: the configuration's.
absl::StatusOr<RunSizes> SizesFromConfig(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  if (!config.schedule.name) {
    return MissingValue(
        config.Field("schedule.name"),
        "a schedule (pipewright list schedules) or schedule.file");
  }
  const absl::StatusOr<ScheduleMatch> match =
      FindSchedule(*config.schedule.name);
  PW_RETURN_IF_ERROR(Prefix(config.Field("schedule.name"), match.status()));
  if (!strategy.pp) {
    return MissingValue(
        config.Field("strategy.pp"),
        absl::StrCat(NumbersAt("strategy.pp"),
                     " (--pp N), or a model, whose layout has a default "
                     "(pipewright simulate MODEL --system NAME)"));
  }
  if (!strategy.microbatches && !strategy.global_batch) {
    return MissingValue(
        config.Field("strategy.microbatches"),
        absl::StrCat(NumbersAt("strategy.microbatches"),
                     ", or strategy.global_batch, from which they follow"));
  }
  RunSizes sizes;
  sizes.pp = *strategy.pp;
  sizes.vpp = strategy.vpp.value_or(match->info->default_vpp);
  sizes.microbatches = strategy.microbatches.value_or(0);
  sizes.slices = strategy.slices.value_or(1);
  return sizes;
}

absl::Status Agree(const RunConfig& config, absl::string_view path,
                   const std::optional<int>& given, int in_file) {
  if (!given || *given == in_file) return absl::OkStatus();
  return BadValue(config.Field(path), absl::StrCat(*given),
                  absl::StrCat(in_file, ", which schedule file ",
                               *config.schedule.file, " says"));
}

absl::StatusOr<RunSizes> SizesFromFile(const RunConfig& config,
                                       const Schedule& schedule) {
  const StrategyChoice& strategy = config.strategy;
  PW_RETURN_IF_ERROR(Agree(config, "strategy.pp", strategy.pp, schedule.pp()));
  PW_RETURN_IF_ERROR(
      Agree(config, "strategy.vpp", strategy.vpp, schedule.vpp()));
  PW_RETURN_IF_ERROR(Agree(config, "strategy.microbatches",
                           strategy.microbatches, schedule.microbatches));
  PW_RETURN_IF_ERROR(
      Agree(config, "strategy.slices", strategy.slices, schedule.slices));
  return RunSizes{.pp = schedule.pp(),
                  .vpp = schedule.vpp(),
                  .microbatches = schedule.microbatches,
                  .slices = schedule.slices};
}

// Stages are few enough for tables, and F, B and W of every stage, microbatch
// and slice fit into memory.
absl::Status CheckPasses(const RunConfig& config, const RunSizes& sizes) {
  const int64_t stages = int64_t{sizes.pp} * sizes.vpp;
  if (stages > kMaxStages) {
    return BadValue(
        config.Field("strategy.pp"),
        absl::StrCat("pp * vpp = ", sizes.pp, " * ", sizes.vpp, " = ", stages),
        absl::StrCat("at most ", kMaxStages, " stages"));
  }
  const double passes = 3.0 * sizes.pp * sizes.vpp * sizes.slices *
                        static_cast<double>(sizes.microbatches);
  if (passes <= static_cast<double>(kMaxPasses)) return absl::OkStatus();
  return BadValue(
      config.Field("strategy.microbatches"), absl::StrCat(sizes.microbatches),
      absl::StrCat("a schedule of at most 2^31 passes (16 GiB); pp ", sizes.pp,
                   " * vpp ", sizes.vpp, " * slices ", sizes.slices,
                   " * microbatches ", sizes.microbatches, " * 3 = ", passes));
}

}  // namespace

absl::StatusOr<RunSizes> PrepareSizes(const RunConfig& config,
                                      const Schedule* read,
                                      RunContext* context) {
  PW_ASSIGN_OR_RETURN(RunSizes sizes, read != nullptr
                                          ? SizesFromFile(config, *read)
                                          : SizesFromConfig(config));
  sizes.dp = config.strategy.dp.value_or(1);
  sizes.tp = config.strategy.tp.value_or(1);
  sizes.cp = config.strategy.cp.value_or(1);
  if (config.strategy.global_batch) {
    PW_RETURN_IF_ERROR(CheckDegrees(config, sizes));
    PW_RETURN_IF_ERROR(TakeGlobalBatch(config, context, &sizes));
  }
  PW_RETURN_IF_ERROR(CheckPasses(config, sizes));
  PW_RETURN_IF_ERROR(CheckDegrees(config, sizes));
  return sizes;
}

}  // namespace pipewright
