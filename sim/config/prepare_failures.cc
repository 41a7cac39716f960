#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/failure_days.h"

namespace pipewright {
namespace {

constexpr double kDay = 86400;
constexpr int kUsualDays = 1000;
// Some seconds.
constexpr double kMostFailures = 1e8;

absl::Status AboveZero(const RunConfig& config, const char* field,
                       const std::optional<double>& seconds) {
  if (!seconds || *seconds > 0) return absl::OkStatus();
  return BadValue(config.Field(field), "0 s", "a time above 0");
}

}  // namespace

absl::StatusOr<std::optional<PreparedFailures>> PrepareFailures(
    const RunConfig& config, int64_t devices) {
  const ReliabilityChoice& given = config.reliability;
  if (!given.mtbf_per_device_s) return std::optional<PreparedFailures>();
  PW_RETURN_IF_ERROR(AboveZero(config, "reliability.mtbf_per_device",
                               given.mtbf_per_device_s));
  PW_RETURN_IF_ERROR(AboveZero(config, "reliability.checkpoint_every",
                               given.checkpoint_every_s));
  PW_RETURN_IF_ERROR(AboveZero(config, "reliability.horizon", given.horizon_s));
  if (!given.checkpoint_write_s) {
    return MissingValue(config.Field("reliability.checkpoint_write"),
                        "how long training stops for a checkpoint "
                        "(--checkpoint-write 1min), which devices that fail "
                        "need");
  }
  PreparedFailures out;
  FailingJob& job = out.job;
  job.devices = devices;
  job.mtbf_per_device_s = *given.mtbf_per_device_s;
  job.checkpoint_write_s = *given.checkpoint_write_s;
  job.restart_s = given.restart_s.value_or(0);
  out.interval_given = given.checkpoint_every_s.has_value();
  if (!out.interval_given && job.checkpoint_write_s == 0) {
    return MissingValue(config.Field("reliability.checkpoint_every"),
                        "a time (--checkpoint-every 30min), since no interval "
                        "is best where a checkpoint takes no time");
  }
  job.checkpoint_every_s =
      out.interval_given ? *given.checkpoint_every_s : DalyInterval(job);
  out.horizon_s = given.horizon_s.value_or(kDay);
  out.seeds = given.seeds.value_or(kUsualDays);
  out.seed =
      static_cast<uint64_t>(given.seed.value_or(config.costs.seed.value_or(0)));
  const double failures = FailuresToDraw(job, out.horizon_s, out.seeds);
  if (failures > kMostFailures) {
    return BadValue(
        config.Field("reliability.seeds"),
        absl::StrCat(out.seeds, " stretches with ", failures, " failures"),
        absl::StrCat("up to ", kMostFailures,
                     " failures to draw: fewer seeds, a shorter horizon or "
                     "devices that fail less often"));
  }
  return std::optional<PreparedFailures>(out);
}

}  // namespace pipewright
