#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {

absl::Status PrepareDataParallel(const RunConfig& config, const RunSizes& sizes,
                                 PreparedRun* run) {
  const std::optional<PreparedModel>& model = run->prepared_model;
  LowerOptions& lower = run->lower;
  lower.replicas = sizes.dp;
  lower.overlap_gradients = config.strategy.overlap_gradients.value_or(true);
  const std::optional<DataParallel>& given = config.strategy.data_parallel;
  lower.data_parallel = given.value_or(DataParallel::kNone);
  lower.shard_blocks = ShardBlocksOf(config, *run->schedule);
  // The two directions of a bidirectional schedule hold the same weights.
  const int directions = run->schedule->directions;
  lower.tied_bytes = model ? TiedGradientBytes(*model) : 0;
  if (sizes.dp == 1 && directions == 1) return absl::OkStatus();
  // Copies of an inference pipeline share nothing.
  const bool trains = run->schedule->backward != BackwardRule::kNone;
  if (!trains && !given) return absl::OkStatus();
  lower.gradient_bytes = GradientBytes(config, sizes, model);
  PW_ASSIGN_OR_RETURN(const TrainingSpec training,
                      PrepareTraining(config, sizes, std::nullopt));
  const double parameters = ParametersPerGradientByte(training);
  for (const double bytes : lower.gradient_bytes) {
    lower.parameter_bytes.push_back(bytes * parameters);
  }
  const bool known = !lower.gradient_bytes.empty();
  if (!given && known) {
    for (const DataParallelTraits& row : kDataParallelModes) {
      if (row.reduces && row.zero_stage() == training.zero) {
        lower.data_parallel = row.mode;
      }
    }
  }
  if (!TraitsOf(lower.data_parallel).reduces) {
    run->warnings.push_back(absl::StrCat(
        directions == 1 ? absl::StrCat("dp = ", sizes.dp)
                        : "the schedule's two replicas hold the same weights",
        ", but gradients are not synchronised: ",
        given ? "strategy.data_parallel is none"
              : "neither a model nor costs.gradient_bytes tells their size"));
    return absl::OkStatus();
  }
  if (known) {
    if (TraitsOf(lower.data_parallel).shards_step && !model &&
        config.costs.gradient_bytes) {
      run->warnings.push_back(absl::StrCat(
          "parameters taken as ", parameters,
          " of costs.gradient_bytes (strategy.parameter_bytes_per_parameter "
          "against gradient_bytes_per_parameter; bf16 against fp32 unless "
          "given)"));
    }
    return absl::OkStatus();
  }
  return MissingValue(
      config.Field("costs.gradient_bytes"),
      "the bytes of one rank's gradients (--gradient-bytes 4GiB), or a model "
      "(--model), from which they follow");
}

}  // namespace pipewright
