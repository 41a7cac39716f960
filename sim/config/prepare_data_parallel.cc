#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/profile_device.h"
#include "sim/cost/device.h"
#include "sim/model/weight_matrices.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

std::vector<OpKind> CollectivesOf(const DataParallelTraits& mode) {
  if (!mode.reduces) return {};
  if (!mode.shards_step) return {OpKind::kAllReduce};
  return {OpKind::kReduceScatter, OpKind::kAllGather};
}

// All that reduce the gradients of `rank`'s stages together.
std::vector<Member> MembersWith(const PreparedRun& run, int rank) {
  const int partner = run.schedule.lowered->pp() - 1 - rank;
  std::vector<Member> members;
  for (int replica = 0; replica < run.lower.replicas; ++replica) {
    members.push_back({replica, rank});
    if (run.schedule.lowered->directions == 2 && partner != rank) {
      members.push_back({replica, partner});
    }
  }
  return members;
}

bool Has(const Profile& profile, absl::string_view operation) {
  return std::any_of(
      profile.transfers.begin(), profile.transfers.end(),
      [&](const TransferEntry& entry) { return entry.operation == operation; });
}

// What of one kind of collective was measured.
struct Found {
  int ranks = 0;       // that take it
  double outside = 0;  // bytes of the last that is no measured size
};

Found FindMeasured(const PreparedRun& run, const Network& network,
                   OpKind kind) {
  const LowerOptions& lower = run.lower;
  const std::vector<double>& bytes =
      kind == OpKind::kAllGather ? lower.parameter_bytes : lower.gradient_bytes;
  const Schedule& schedule = *run.schedule.lowered;
  Found found;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const std::vector<Member> members = MembersWith(run, rank);
    bool any = false;
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      const int stage = schedule.placement.StageOf(rank, chunk, 0);
      const auto time = MeasuredCollective(
          network, {.kind = kind, .bytes = bytes[stage], .stage = stage},
          members);
      if (!time) continue;
      any = true;
      if (!time->inside) found.outside = bytes[stage];
    }
    found.ranks += any ? 1 : 0;
  }
  return found;
}

// Matrices that Muon steps whole: what is empty in the buffers that they lie
// in goes round with them; what is in parts is gathered before the step, in the
// type of its products.
void TakeMatrices(const PreparedModel& model, LowerOptions* lower) {
  constexpr double kGathered = 2;  // [numerics, bytes]
  const TrainingSpec& training = model.training;
  if (!training.optimizer.is_muon() || training.zero == 0) return;
  const size_t stages = model.layout.stages.size();
  for (size_t stage = 0; stage < stages; ++stage) {
    std::vector<double> elements[2];  // dense, of experts
    for (const StageBlock& block : model.layout.stages[stage]) {
      for (int64_t at = 0; at < block.count; ++at) {
        for (const ModelOp& op :
             model.Ops(block.kind, block.first_layer + at)) {
          for (const auto& each : MatricesOf(training, block.kind, op)) {
            elements[each.is_expert ? 1 : 0].push_back(each.elements());
          }
        }
      }
    }
    const bool one_bucket = HasOneBucket(training, static_cast<int>(stage));
    double empty = 0;
    double gathered = 0;
    for (const bool of_experts : {false, true}) {
      const std::vector<double>& own = elements[of_experts ? 1 : 0];
      const int shards =
          of_experts ? training.expert_shards() : training.shards();
      const double share = of_experts ? training.expert_share() : 1;
      const double all = std::accumulate(own.begin(), own.end(), 0.0);
      empty += share * (OwnersOf(own, shards, one_bucket).padded - all);
      gathered += share * all;
    }
    if (IsLayerWise(training)) {
      lower->gradient_bytes[stage] += training.gradient_bytes * empty;
      lower->parameter_bytes[stage] += training.weight_bytes * empty;
    } else {
      lower->update_bytes.push_back(kGathered * gathered);
    }
  }
}

}  // namespace

void TakeMeasuredCollectives(const RunConfig& config, const RunSizes& sizes,
                             PreparedRun* run) {
  const ShapeParams* const shape = run->network.system_shape();
  const std::optional<PreparedProfile>& profile = run->costs.profile;
  const int members = sizes.holders() * run->schedule.lowered->directions;
  if (!profile || members == 1 || run->lower.gradient_bytes.empty()) {
    return;
  }
  const std::string& name = profile->name;
  Network network = run->lower.network;
  std::string reason;
  if (config.costs.p2p_s) {
    reason = "costs.p2p is given";
  } else if (sizes.tp * sizes.cp > 1) {
    reason = "with tp or cp several rings run at once, and one was measured";
  } else if (shape != nullptr &&
             !IsOfDevice(*profile->profile, shape->device_name)) {
    reason = "it was measured on another device than the system's";
  }
  if (reason.empty()) network.measured = profile->profile;
  std::vector<std::string> taken;
  bool all = true;
  for (const OpKind kind : CollectivesOf(TraitsOf(run->lower.data_parallel))) {
    const absl::string_view operation = CollectiveName(CollectiveKindOf(kind));
    const std::string what = absl::StrCat(operation, " over ", members);
    const Found found = FindMeasured(*run, network, kind);
    all &= found.ranks == sizes.pp;
    if (found.ranks > 0) {
      taken.push_back(what);
      if (found.ranks < sizes.pp) {
        absl::StrAppend(&taken.back(), " on ", found.ranks, " of ", sizes.pp,
                        " ranks");
      }
    } else if (Has(*profile->profile, operation)) {
      std::string why = reason;
      if (why.empty()) {
        why = absl::StrCat(
            "it is not of these members, ", what,
            shape == nullptr
                ? ""
                : ", over nccl on as many nodes (a profile without nodes "
                  "does not say on how many)");
      }
      run->warnings.push_back(absl::StrCat(
          "profile ", name, ": its ", operation, " is not used: ", why,
          "; gradient synchronisation takes the time of the network"));
    }
    if (found.outside > 0) {
      run->warnings.push_back(absl::StrCat(
          "profile ", name, ": ", what, " of ", FormatBytes(found.outside),
          " is outside of the measured sizes"));
    }
  }
  if (taken.empty()) return;
  run->lower.network.measured = std::move(network.measured);
  run->costs.measured_collectives = absl::StrJoin(taken, ", ");
  if (!all) return;
  run->warnings.erase(std::remove(run->warnings.begin(), run->warnings.end(),
                                  kFreeSynchronisation),
                      run->warnings.end());
}

absl::Status PrepareDataParallel(const RunConfig& config, const RunSizes& sizes,
                                 PreparedRun* run) {
  const std::optional<PreparedModel>& model = run->prepared_model;
  LowerOptions& lower = run->lower;
  lower.replicas = sizes.dp;
  lower.overlap_gradients = config.strategy.overlap_gradients.value_or(true);
  const std::optional<DataParallel>& given = config.strategy.data_parallel;
  lower.data_parallel = given.value_or(DataParallel::kNone);
  lower.shard_blocks = ShardBlocksOf(config, *run->schedule.lowered);
  // The two directions of a bidirectional schedule hold the same weights.
  const int directions = run->schedule.lowered->directions;
  lower.tied_bytes = model ? TiedGradientBytes(*model) : 0;
  const int copies = given == DataParallel::kOdc ? sizes.dp : sizes.holders();
  if (copies == 1 && directions == 1) return absl::OkStatus();
  // Copies of an inference pipeline share nothing.
  const bool trains = run->schedule.lowered->backward != BackwardRule::kNone;
  if (!trains && !given) return absl::OkStatus();
  lower.gradient_bytes = GradientBytes(config, sizes, model);
  PW_ASSIGN_OR_RETURN(const TrainingSpec training,
                      PrepareTraining(config, sizes, std::nullopt));
  const bool known = !lower.gradient_bytes.empty();
  // strategy.zero is another word for it, and 0 where neither is given.
  if (!given && known) {
    lower.data_parallel = training.zero > 0 ? DataParallelOf(config.strategy)
                                            : DataParallel::kDdp;
  }
  if (TraitsOf(lower.data_parallel).shards_weights && model &&
      !config.costs.gradient_bytes) {
    lower.parameter_bytes = GatheredWeights(*model);
    if (model->spec.frozen_layers > 0) {
      lower.layers.stages = LayerShares(*model);
    }
  } else {
    const double parameters = ParametersPerGradientByte(training);
    for (const double bytes : lower.gradient_bytes) {
      lower.parameter_bytes.push_back(bytes * parameters);
    }
  }
  const bool odc = lower.data_parallel == DataParallel::kOdc;
  if (odc || (lower.data_parallel == DataParallel::kFsdp &&
              lower.shard_blocks == ShardBlocks::kLayer)) {
    PW_RETURN_IF_ERROR(PrepareLayers(config, training, run));
  }
  if (!TraitsOf(lower.data_parallel).reduces) {
    run->warnings.push_back(absl::StrCat(
        directions == 1
            ? sizes.cp == 1 ? absl::StrCat("dp = ", sizes.dp)
                            : absl::StrCat("dp * cp = ", sizes.holders())
            : "the two directions of the schedule hold the same weights",
        ", but gradients are not synchronised: ",
        given ? "strategy.data_parallel is none"
              : "neither a model nor costs.gradient_bytes tells their size"));
    return absl::OkStatus();
  }
  if (known) {
    if (model) TakeMatrices(*model, &lower);
    if (TraitsOf(lower.data_parallel).shards_step && !model &&
        config.costs.gradient_bytes) {
      run->warnings.push_back(absl::StrCat(
          "parameters taken as ", ParametersPerGradientByte(training),
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
