#include "sim/cli/execute_predict.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/execute_model.h"
#include "sim/report/format.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

// On the real clock messages take the time that they take, so links that say
// otherwise are refused.
absl::Status CheckLinks(const PreparedRun& run, const WayToRun& way) {
  if (way.clock != ClockKind::kReal || way.replays) return absl::OkStatus();
  const RunConfig& config = run.config;
  if (config.costs.p2p_s.value_or(0) > 0) {
    return BadValue(
        config.Field("costs.p2p"), FormatSeconds(*config.costs.p2p_s),
        "0ms, or --clock virtual or paced (with --clock real messages take "
        "real time; calibrate --transport measures it)");
  }
  if (config.costs.hop_bytes && !way.processes) {
    return BadValue(
        config.Field("costs.hop_bytes"), FormatBytes(*config.costs.hop_bytes),
        "none, --clock virtual or paced, or mpirun and --bootstrap (with "
        "--clock real the threads of one process send the bytes of the model)");
  }
  // Processes may be on the system that is given.
  if (NamesSystem(config.system) && !way.processes) {
    return BadValue(config.Field("system"), run.network.system,
                    "none, --clock virtual or paced, or mpirun and --bootstrap "
                    "on that system (with --clock real the threads of one "
                    "process do not use its links)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPredictable(const PreparedRun& run, const WayToRun& way) {
  PW_RETURN_IF_ERROR(CheckLinks(run, way));
  const RunConfig& config = run.config;
  if (way.clock != ClockKind::kReal &&
      config.costs.interference.value_or(false)) {
    return BadValue(config.Field("costs.interference"), "on",
                    "off, or --clock real (with the other clocks no pass slows "
                    "another down)");
  }
  if (way.clock == ClockKind::kPaced) return absl::OkStatus();
  const DpClassChoice& classes = config.strategy.dp_classes;
  const std::pair<const char*, const std::vector<double>*> factors[] = {
      {"costs.microbatch_factor", &config.costs.microbatch_factor},
      {"strategy.dp_classes.microbatch_factor", &classes.microbatch_factor},
      {"strategy.dp_classes.slower", &classes.slower}};
  for (const auto& [field, values] : factors) {
    const auto unlike = std::find_if(values->begin(), values->end(),
                                     [](double factor) { return factor != 1; });
    if (unlike == values->end()) continue;
    return BadValue(config.Field(field), absl::StrCat(*unlike),
                    "1, or --clock paced (kernels take the time that they "
                    "take, of microbatches of one length or of --lengths)");
  }
  if (config.costs.pair_factor.value_or(1) != 1) {
    return BadValue(config.Field("costs.pair_factor"),
                    absl::StrCat(*config.costs.pair_factor),
                    "1, or --clock paced (the kernels of a pair run one after "
                    "the other)");
  }
  return absl::OkStatus();
}

RunConfig WithoutUnexecuted(RunConfig read, const WayToRun& way) {
  if (way.clock != ClockKind::kReal && read.costs.profile &&
      !read.costs.interference) {
    read.costs.interference = false;
  }
  read.timed_by_run = way.clock != ClockKind::kPaced;
  return read;
}

absl::Status Predict(const PreparedRun& run, const Program& program,
                     ExecuteReport* report) {
  if (!HasTimes(run)) return absl::OkStatus();
  SimulateOptions options;
  options.interval = true;
  PW_ASSIGN_OR_RETURN(const ProgramResult predicted,
                      SimulateProgram(run, program, options));
  report->predicted_iteration_s = predicted.report.iteration_s;
  report->predicted_interval = predicted.report.interval;
  const RunSummary& summary = predicted.summary;
  for (const RankTimes& times : summary.times[summary.row_of_replica[0]]) {
    report->predicted_span_s.push_back(times.span_s());
  }
  report->predicted_by = predicted.report.engine;
  return absl::OkStatus();
}

}  // namespace pipewright
