// ZB-V: two chunks a rank in a V, no bubble at the memory of 1F1B. The
// published pattern, or the planner where costs or a limit are given.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/zb_v_plan.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr char kName[] = "zb-v";
constexpr char kHandcrafted[] = "handcrafted";
constexpr char kAutomatic[] = "automatic";

// Adds the passes of one rank, each kind and chunk in microbatch order, and
// leaves out microbatches that are not there.
class RankWriter {
 public:
  RankWriter(int rank, int microbatches, ScheduleBuilder* builder)
      : rank_(rank), microbatches_(microbatches), builder_(builder) {}

  void Forward(int chunk) { Add(PassKind::kForward, chunk, &forwards_); }
  void BackwardInput(int chunk) {
    Add(PassKind::kBackwardInput, chunk, &backwards_);
  }
  void BackwardWeight(int chunk) {
    Add(PassKind::kBackwardWeight, chunk, &weights_);
  }
  void Backward(int chunk) {
    BackwardInput(chunk);
    BackwardWeight(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }
  int weights(int chunk) const { return weights_[chunk]; }

 private:
  void Add(PassKind kind, int chunk, std::array<int, 2>* next) {
    const int microbatch = (*next)[chunk]++;
    if (microbatch < microbatches_) {
      builder_->Add(rank_, kind, microbatch, chunk);
    }
  }

  const int rank_;
  const int microbatches_;
  ScheduleBuilder* const builder_;
  std::array<int, 2> forwards_ = {};
  std::array<int, 2> backwards_ = {};
  std::array<int, 2> weights_ = {};
};

// The pattern needs 2p-1 microbatches; with fewer it has holes.
void AddHandcraftedRank(int pp, int rank, int microbatches,
                        ScheduleBuilder* builder) {
  const int filled = std::max(microbatches, 2 * pp - 1);
  RankWriter writer(rank, microbatches, builder);
  for (int count = 0; count < 2 * (pp - rank) - 1; ++count) writer.Forward(0);
  for (int count = 0; count < rank; ++count) {
    writer.Forward(1);
    writer.Forward(0);
  }
  for (int count = 0; count < pp - rank; ++count) {
    writer.Forward(1);
    writer.Backward(1);
  }
  while (writer.forwards(1) < writer.forwards(0) ||
         writer.forwards(0) < filled) {
    if (writer.forwards(0) < filled) writer.Forward(0);
    writer.Backward(0);
    writer.Forward(1);
    writer.Backward(1);
  }
  for (int count = 0; count < rank; ++count) {
    writer.BackwardInput(0);
    writer.BackwardInput(1);
  }
  for (int count = 0; count < pp - rank; ++count) writer.Backward(0);
  while (writer.weights(1) < filled) writer.BackwardWeight(1);
  while (writer.weights(0) < filled) writer.BackwardWeight(0);
}

bool IsAutomatic(const ScheduleParams& params) {
  const auto variant = params.own.find("variant");
  if (variant != params.own.end()) return variant->second == kAutomatic;
  return params.costs.given || params.max_activations.has_value();
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_RETURN_IF_ERROR(
      ChoiceParam(params, "variant", kHandcrafted, {kHandcrafted, kAutomatic})
          .status());
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches);
  if (!IsAutomatic(params)) {
    for (int rank = 0; rank < params.pp; ++rank) {
      builder.Reserve(rank, int64_t{6} * params.microbatches);
      AddHandcraftedRank(params.pp, rank, params.microbatches, &builder);
    }
    return std::move(builder).Finish();
  }
  // With fewer than pp microbatches a plan for pp may do with less.
  const double limit = params.max_activations.value_or(params.pp);
  ZbVPlanner planner(params, std::max<double>(limit, params.pp));
  if (!(planner.peak() <= limit * (1 + 1e-9))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "strategy.max_activations: ", limit,
        " cannot be met; the smallest limit that works with schedule ", kName,
        " is ", planner.peak()));
  }
  planner.Record(&builder);
  return std::move(builder).Finish();
}

bool IsEqual(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return costs.forward == costs.backward_input &&
         costs.forward == costs.backward_weight && costs.hop == 0;
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two chunks a rank in a V, no bubble at the memory of 1F1B",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6; "
              "tie-breaks of the authors' released planner",
    .torch_name = "ZBVZeroBubble",
    .torch_params = {{"variant", kHandcrafted}},
    .default_vpp = 2,
    .params = {{"variant", "by costs", "handcrafted|automatic",
                "automatic: planned for the costs within the limit (pp unless "
                "given); the default where costs or a limit are given"}},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = "arXiv 2401.10241, section 6; F = B = W, c = 0, "
                       "m >= 2p-1",
             .domain =
                 [](const ScheduleParams& params) {
                   return IsEqual(params) &&
                          params.microbatches >= 2 * params.pp - 1;
                 },
             .value = [](const ScheduleParams&, int) { return 0.0; }},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "p M on every rank",
             .source = "arXiv 2401.10241, section 6; handcrafted, m >= 2p",
             .domain =
                 [](const ScheduleParams& params) {
                   return !IsAutomatic(params) &&
                          params.microbatches >= 2 * params.pp;
                 },
             .value = [](const ScheduleParams& params,
                         int) { return 1.0 * params.pp; }},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "the limit",
             .source = "arXiv 2401.10241, section 6; automatic",
             .domain = IsAutomatic,
             .value =
                 [](const ScheduleParams& params, int) {
                   return params.max_activations.value_or(params.pp);
                 }},
        },
});

}  // namespace
}  // namespace pipewright
