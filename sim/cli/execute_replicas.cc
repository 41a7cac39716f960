#include "sim/cli/execute_replicas.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/program/optimizer_plan.h"
#include "sim/program/program.h"
#include "sim/sequences/packer.h"

namespace pipewright {
namespace {

// Without sizes gradients are reduced all the same.
void FillBytes(DataParallel mode, LowerOptions* lower, int stages) {
  lower->data_parallel = mode;
  if (!TraitsOf(mode).reduces) return;
  for (std::vector<double>* const bytes :
       {&lower->gradient_bytes, &lower->parameter_bytes}) {
    if (bytes->empty()) bytes->assign(static_cast<size_t>(stages), 0);
  }
}

// [microbatch of an iteration, replica after replica]: the lengths of its
// samples.
std::vector<std::vector<int64_t>> LengthsOf(
    const PreparedSequences& sequences) {
  std::vector<std::vector<int64_t>> lengths;
  for (const Parts& microbatches : sequences.packing) {
    for (const std::vector<int>& samples : microbatches) {
      std::vector<int64_t>& own = lengths.emplace_back();
      for (const int sample : samples) {
        own.push_back(sequences.request.lengths[sample]);
      }
    }
  }
  return lengths;
}

}  // namespace

void ReduceInClasses(PreparedRun* run) {
  const DataParallel mode = run->lower.data_parallel;
  FillBytes(mode, &run->lower, run->schedule.lowered->stages());
  for (PreparedClass& own : run->classes) {
    PreparedRun alike = *own.run;
    FillBytes(mode, &alike.lower, alike.schedule.lowered->stages());
    own.run = std::make_shared<const PreparedRun>(std::move(alike));
  }
}

int64_t MostTokens(const PreparedSequences& sequences) {
  int64_t most = 0;
  for (const std::vector<int64_t>& samples : LengthsOf(sequences)) {
    most = std::max(
        most, std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  }
  return most;
}

int64_t LongestSample(const PreparedSequences& sequences) {
  int64_t longest = 0;
  for (const std::vector<int64_t>& samples : LengthsOf(sequences)) {
    for (const int64_t length : samples) longest = std::max(longest, length);
  }
  return longest;
}

absl::Status TakeLengths(const PreparedRun& run, ExecutedModel* model) {
  model->lengths = LengthsOf(*run.sequences);
  model->batch = 1;
  model->sequence = MostTokens(*run.sequences);
  const int64_t longest = LongestSample(*run.sequences);
  // Rotary positions go on as far as a sample does.
  const bool learned = model->shape.style == PW_GPT;
  if (!learned || longest <= model->shape.sequence) return absl::OkStatus();
  return BadValue("strategy.sequence", absl::StrCat(model->shape.sequence),
                  absl::StrCat("at least ", longest,
                               ", the longest sample, as positions are learned "
                               "for so many tokens"));
}

absl::Status CheckReplicas(const PreparedRun& run, const Program& program,
                           const ReplicaChecks& checks) {
  const Schedule& schedule = *program.schedule;
  const RunConfig& config = run.config;
  const bool differ = program.num_classes() > 1 || run.sequences;
  if (differ && checks.replays) {
    return FieldError("--replay-rank",
                      "runs the ranks of one replica for those of all; "
                      "allowed: replicas that run alike, without lengths");
  }
  if (differ && (schedule.directions > 1 || schedule.update_every > 0)) {
    return BadValue(
        config.Field("schedule.name"), schedule.name,
        "one of one direction that is flushed, with replicas that differ or "
        "lengths");
  }
  const bool layered = !program.ranks[0].layers.empty();
  if (run.lower.offload.active() && (layered || program.num_classes() > 1)) {
    return BadValue(
        config.Field("strategy.optimizer_placement"),
        TraitsOf(run.lower.offload.placement).name,
        layered ? "gpu where replicas gather layers one by one (the executor "
                  "steps on the host with strategy.data_parallel none, ddp, "
                  "zero1, zero2, or fsdp with strategy.shard_blocks pass)"
                : "gpu where replicas differ (the executor steps on the host "
                  "in replicas that run alike)");
  }
  if (!layered) return absl::OkStatus();
  const LayerOptions& layers = run.lower.layers;
  const bool odc = run.lower.data_parallel == DataParallel::kOdc;
  const auto refuse_group = [&](const char* field, int group) {
    if (group == 0 || group == program.replicas) return absl::OkStatus();
    return BadValue(config.Field(field), absl::StrCat(group),
                    absl::StrCat("0 or all ", program.replicas,
                                 " replicas with execute, which shards over "
                                 "all of them"));
  };
  PW_RETURN_IF_ERROR(refuse_group("strategy.shard_group", layers.shard_group));
  PW_RETURN_IF_ERROR(refuse_group("strategy.near_group", layers.near_group));
  if (odc && checks.device != "cpu") {
    return BadValue("--device", checks.device,
                    "cpu with strategy.data_parallel odc (owners' memory is "
                    "shared on the host)");
  }
  // An owner that looks so rarely would seem to be lost.
  if (odc && checks.kernels && 2 * layers.poll_s >= checks.timeout_s) {
    return BadValue(config.Field("strategy.owner_poll"),
                    FormatSeconds(layers.poll_s),
                    absl::StrCat("less than half of --timeout (",
                                 FormatSeconds(checks.timeout_s), ")"));
  }
  if (checks.replays) {
    return FieldError("--replay-rank",
                      "runs one rank alone; allowed: without layers that "
                      "replicas gather from each other");
  }
  return absl::OkStatus();
}

}  // namespace pipewright
