#include "sim/cost/profile_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cost/exchange.h"
#include "sim/cost/profile_interpolation.h"
#include "sim/cost/profile_lookup.h"
#include "sim/cost/profile_shape.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

constexpr ProfilePass kAllPasses[] = {
    ProfilePass::kForward, ProfilePass::kBackwardInput,
    ProfilePass::kBackwardWeight, ProfilePass::kBackwardFull,
    ProfilePass::kRecompute};

absl::StatusOr<ProfilePart> PartOf(BlockKind kind) {
  switch (kind) {
    case BlockKind::kEmbedding:
      return ProfilePart::kEmbedding;
    case BlockKind::kDenseLayer:
      return ProfilePart::kLayer;
    case BlockKind::kExpertLayer:
      return ProfilePart::kExpertLayer;
    case BlockKind::kHead:
      return ProfilePart::kHead;
    default:
      return FieldError(
          "costs.profile",
          absl::StrCat("no profile measures a block of kind ",
                       BlockKindName(kind),
                       "; allowed: embedding, layer, expert layer, head"));
  }
}

absl::Status CheckSupported(const TrainingSpec& training) {
  if (training.cp > 1) {
    return BadValue("strategy.cp", absl::StrCat(training.cp),
                    "1 with costs.profile (no pass is measured with context "
                    "parallelism)");
  }
  if (training.recompute != Recompute::kNone &&
      training.recompute != Recompute::kFull) {
    return BadValue("strategy.recompute",
                    training.recompute == Recompute::kSelective ? "selective"
                    : training.recompute == Recompute::kOpSelective
                        ? "op-selective"
                        : "norm-activation",
                    "none, full with costs.profile");
  }
  const auto absent = [](const char* field, int value) {
    return BadValue(field, absl::StrCat(value), "absent with costs.profile");
  };
  if (training.recompute_layers > 0) {
    return absent("strategy.recompute_layers", training.recompute_layers);
  }
  if (training.recompute_every > 1) {
    return absent("strategy.recompute_every", training.recompute_every);
  }
  if (IsNarrow(training.precision) && training.precision != Precision::kFp8) {
    return BadValue("strategy.precision", PrecisionName(training.precision),
                    "bf16, fp8 with costs.profile");
  }
  if (!training.flash_attention) {
    return BadValue("strategy.attention", "unfused",
                    "flash with costs.profile");
  }
  return absl::OkStatus();
}

// Adds a pass of the profile to the passes of a stage, `times` over.
void AddQuantiles(const std::vector<double>& quantiles, double seconds,
                  double times, std::vector<double>* sum) {
  for (size_t knot = 0; knot < sum->size(); ++knot) {
    const double probability =
        static_cast<double>(knot) / static_cast<double>(sum->size() - 1);
    (*sum)[knot] += times * seconds * QuantileAt(quantiles, probability);
  }
}

// Points of a distribution: whole percents. [numerics]
constexpr size_t kKnots = 101;

// One stage, summed up: seconds and quantiles (in seconds) of each pass.
struct StageSum {
  StageCosts costs;
  bool any_full = false;
  std::array<std::vector<double>, kNumProfilePasses> quantiles;
  // By row of ProfileLookup::times().
  std::map<int, std::array<double, kNumPassKinds>> rows;

  StageSum() { quantiles.fill(std::vector<double>(kKnots, 0)); }
};

class Summation {
 public:
  Summation(const Profile& profile, const ModelSpec& model,
            const TrainingSpec& training, const ProfileCostOptions& options,
            ProfileLookup* lookup)
      : profile_(profile),
        model_(model),
        training_(training),
        options_(options),
        lookup_(lookup) {}

  absl::Status Add(const StageBlock& block, bool recomputes, StageSum* sum) {
    PW_ASSIGN_OR_RETURN(const ProfilePart part, PartOf(block.kind));
    PW_ASSIGN_OR_RETURN(const PartTimes times, lookup_->Of(part, recomputes));
    // What is missing is told together, in the end.
    if (!lookup_->Missing().ok()) return absl::OkStatus();
    const double count = static_cast<double>(block.count) * block.part;
    const auto seconds = [&](ProfilePass pass) {
      return times.seconds[static_cast<int>(pass)];
    };
    std::array<double, kNumOpPasses> exchange = {};
    if (training_.tp > 1 || training_.ep > 1) {
      PW_ASSIGN_OR_RETURN(exchange, Exchanges(block));
    }
    for (const ProfilePass pass : kAllPasses) {
      AddQuantiles(times.quantiles[static_cast<int>(pass)], seconds(pass),
                   count, &sum->quantiles[static_cast<int>(pass)]);
    }
    AddRows(times, count, recomputes && IsLayer(part), &sum->rows);
    StageCosts& costs = sum->costs;
    costs.forward_s += count * (seconds(ProfilePass::kForward) + exchange[0]);
    costs.backward_input_s +=
        count * (seconds(ProfilePass::kBackwardInput) + exchange[1]);
    costs.backward_weight_s +=
        count * (seconds(ProfilePass::kBackwardWeight) + exchange[2]);
    costs.backward_full_s += count * (seconds(ProfilePass::kBackwardFull) +
                                      exchange[1] + exchange[2]);
    sum->any_full |= times.full_measured;
    if (recomputes && IsLayer(part)) {
      costs.recompute_s +=
          count * (seconds(ProfilePass::kRecompute) + exchange[0]);
    }
    return absl::OkStatus();
  }

 private:
  // As the times are added up below, what is run again within the backward
  // included.
  static void AddRows(const PartTimes& times, double count, bool recomputes,
                      std::map<int, std::array<double, kNumPassKinds>>* rows) {
    const auto add = [&](ProfilePass pass, PassKind kind) {
      for (const auto& [row, seconds] : times.rows[static_cast<int>(pass)]) {
        (*rows)[row][static_cast<int>(kind)] += count * seconds;
      }
    };
    add(ProfilePass::kForward, PassKind::kForward);
    add(ProfilePass::kBackwardInput, PassKind::kBackwardInput);
    add(ProfilePass::kBackwardWeight, PassKind::kBackwardWeight);
    add(ProfilePass::kBackwardFull, PassKind::kBackwardFull);
    if (!recomputes) return;
    for (const PassKind kind : {PassKind::kRecompute, PassKind::kBackwardInput,
                                PassKind::kBackwardFull}) {
      add(ProfilePass::kRecompute, kind);
    }
  }

  // Seconds that tp and ep exchange in F, B and W of one block; a microbatch is
  // one exchange a slice.
  absl::StatusOr<std::array<double, kNumOpPasses>> Exchanges(
      const StageBlock& block) {
    std::array<double, kNumOpPasses> out = {};
    for (const ModelOp& op :
         BlockOps(model_, training_, block.kind, block.first_layer)) {
      for (const OpComm& comm : op.comms) {
        PW_ASSIGN_OR_RETURN(const double seconds, Exchange(comm));
        out[static_cast<int>(comm.pass)] += training_.slices * seconds;
      }
    }
    return out;
  }

  absl::StatusOr<double> Exchange(const OpComm& comm) {
    if (comm.members == 1 || comm.bytes <= 0) return 0.0;
    // No profile has an all-to-all: it is of the system.
    const std::optional<CollectiveKind> kind = CollectiveOf(comm.kind);
    OpComm scaled = comm;
    scaled.bytes = comm.bytes * lookup_->bytes_factor();
    const absl::string_view name = kind ? CollectiveName(*kind) : "all_to_all";
    CollectiveLinks links;
    if (options_.network != nullptr) {
      links = NcclGroupOf(*options_.network, training_, comm);
    }
    const MeasuredMembers measured = {.profile = &profile_,
                                      .between_ranks = true};
    std::optional<CollectiveTime> time;
    if (kind) {
      time =
          TimeOfCollective(*kind, scaled.bytes, comm.members, links, &measured);
    } else if (options_.network != nullptr) {
      return CommSeconds(*options_.network, training_, scaled);
    }
    if (!time) {
      return FieldError(
          "costs.profile",
          absl::StrCat(
              options_.name, " has no ", name, " over ", comm.members,
              " devices, and no system is given; allowed: a system "
              "(--system NAME)",
              kind ? ", or a profile that has them (pipewright calibrate "
                     "import --nccl-tests FILE)"
                   : ""));
    }
    if (!time->inside) {
      lookup_->Warn(absl::StrCat("profile ", options_.name, ": ", name, " of ",
                                 FormatBytes(scaled.bytes), " over ",
                                 comm.members,
                                 " is outside of the measured sizes"));
    }
    if (time->between_ranks) {
      lookup_->Warn(absl::StrCat("profile ", options_.name, ": ", name,
                                 " over ", comm.members,
                                 " was measured over fewer and over more "
                                 "only; it lies between"));
    }
    return time->seconds;
  }

  const Profile& profile_;
  const ModelSpec& model_;
  const TrainingSpec& training_;
  const ProfileCostOptions& options_;
  ProfileLookup* lookup_;
};

// The part of the activations that a split B leaves to W.
double HeldUntilWeight(const ModelSpec& model, const TrainingSpec& training,
                       const StageLayout& layout) {
  double until_weight = 0;
  double until_backward = 0;
  for (const std::vector<StageBlock>& blocks : layout.stages) {
    for (const StageBlock& block : blocks) {
      const double count = static_cast<double>(block.count) * block.part;
      for (const ModelOp& op :
           BlockOps(model, training, block.kind, block.first_layer)) {
        until_weight += count * (op.saved_until_weight + op.held_for_weight);
        until_backward += count * op.saved_until_backward;
      }
    }
  }
  const double all = until_weight + until_backward;
  return all > 0 ? std::min(1.0, until_weight / all) : 1;
}

// Factors on a time of `seconds`, of which the quantiles' part is noisy.
std::vector<double> RelativeTo(double seconds, std::vector<double> quantiles) {
  const double median = QuantileAt(quantiles, 0.5);
  for (double& value : quantiles) {
    value = seconds > 0 ? (seconds - median + value) / seconds : 1;
  }
  return quantiles;
}

std::vector<double> SumOf(const std::vector<double>& one,
                          const std::vector<double>& other) {
  std::vector<double> sum = one;
  for (size_t knot = 0; knot < sum.size(); ++knot) sum[knot] += other[knot];
  return sum;
}

std::array<std::vector<double>, kNumPassKinds> JitterOf(const StageSum& sum) {
  const auto of = [&](ProfilePass pass) -> const std::vector<double>& {
    return sum.quantiles[static_cast<int>(pass)];
  };
  const StageCosts& costs = sum.costs;
  const std::vector<double>& again = of(ProfilePass::kRecompute);
  const bool recomputes = costs.recompute_s > 0;
  const auto backward = [&](ProfilePass pass) {
    return recomputes ? SumOf(of(pass), again) : of(pass);
  };
  std::array<std::vector<double>, kNumPassKinds> out;
  const auto set = [&](PassKind kind, std::vector<double> quantiles,
                       double seconds) {
    out[static_cast<int>(kind)] = RelativeTo(seconds, std::move(quantiles));
  };
  set(PassKind::kForward, of(ProfilePass::kForward), costs.forward_s);
  set(PassKind::kBackwardInput, backward(ProfilePass::kBackwardInput),
      costs.backward_input_s);
  set(PassKind::kBackwardWeight, of(ProfilePass::kBackwardWeight),
      costs.backward_weight_s);
  set(PassKind::kBackwardFull, backward(ProfilePass::kBackwardFull),
      costs.backward_full_s > 0
          ? costs.backward_full_s
          : costs.backward_input_s + costs.backward_weight_s);
  set(PassKind::kRecompute, again, costs.recompute_s);
  return out;
}

// A row of the lookup each.
std::vector<TimeSource> SourcesOf(const std::vector<ProfiledTime>& times,
                                  const std::vector<StageSum>& sums,
                                  std::string* unknown) {
  std::vector<TimeSource> sources;
  for (size_t row = 0; row < times.size(); ++row) {
    const ProfiledTime& time = times[row];
    TimeSource& source = sources.emplace_back();
    source.name = absl::StrCat(
        ProfilePartName(time.part), " ", ProfilePassName(time.pass),
        time.nearest->pp > 0 ? absl::StrCat(" rank ", time.nearest->rank) : "");
    const std::optional<TimeError> error = ErrorOfMedian(time.nearest->time);
    if (!error) {
      *unknown = absl::StrCat(source.name, ": no drift was measured");
    } else if (time.error < 0) {
      *unknown = absl::StrCat(source.name,
                              ": the error of its interpolation is unknown");
    } else {
      source.error = *error;
      source.error.own = std::hypot(error->own, kTwoSided90 * time.error);
    }
    for (const StageSum& sum : sums) {
      const auto found = sum.rows.find(static_cast<int>(row));
      source.seconds.push_back(found == sum.rows.end()
                                   ? std::array<double, kNumPassKinds>{}
                                   : found->second);
    }
  }
  return sources;
}

// AdamW reads gradient, weight and both moments of a parameter and writes all
// but the gradient, in fp32, and the weight in 16 bits. [numerics, bytes]
constexpr double kStepBytes = 7 * 4 + 2;

std::optional<double> SecondsOnLine(const Profile& profile, bool prediction,
                                    double parameters) {
  std::vector<GridPoint> points;
  for (const OptimizerEntry& entry : profile.optimizers) {
    if (entry.where != "device" || entry.prediction != prediction ||
        entry.time.median_s <= 0) {
      continue;
    }
    const auto size = static_cast<double>(entry.parameters);
    points.push_back({{size}, {size}, entry.time.median_s});
  }
  if (points.empty()) return {};
  return Interpolation(std::move(points))
      .At({parameters}, {parameters})
      .seconds;
}

}  // namespace

absl::StatusOr<ProfileCosts> CostsOfProfile(
    const Profile& profile, const ModelSpec& model,
    const TrainingSpec& training, const StageLayout& layout,
    const std::vector<int>& rank_of_stage, const ProfileCostOptions& options) {
  PW_RETURN_IF_ERROR(CheckSupported(training));
  ProfileCosts out;
  PW_ASSIGN_OR_RETURN(ProfileLookup lookup,
                      ProfileLookup::Create(profile, model, training, options));
  Summation summation(profile, model, training, options, &lookup);
  const std::vector<Recompute> recompute =
      RecomputeOfStages(training, rank_of_stage);
  std::vector<StageSum> sums(layout.stages.size());
  bool any_full = false;
  const int64_t pp =
      rank_of_stage.empty()
          ? 0
          : 1 + *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  for (size_t stage = 0; stage < sums.size(); ++stage) {
    if (stage < rank_of_stage.size()) {
      lookup.EnterRank(rank_of_stage[stage], pp);
    }
    for (const StageBlock& block : layout.stages[stage]) {
      PW_RETURN_IF_ERROR(summation.Add(
          block, recompute[stage] == Recompute::kFull, &sums[stage]));
    }
    any_full |= sums[stage].any_full;
  }
  PW_RETURN_IF_ERROR(lookup.Missing());
  out.costs.exchanges = ExchangesOfStages(model, training, options.network,
                                          layout, rank_of_stage);
  const double gather_s =
      options.network == nullptr
          ? 0
          : GatherSeconds(model, training, *options.network);
  const auto crosses = [&](size_t stage) {
    return stage > 0 && stage < rank_of_stage.size() &&
           rank_of_stage[stage] != rank_of_stage[stage - 1];
  };
  for (size_t stage = 0; stage < sums.size(); ++stage) {
    StageCosts& costs = sums[stage].costs;
    if (crosses(stage)) costs.forward_s += gather_s;
    if (crosses(stage + 1)) {
      costs.backward_input_s += gather_s;
      costs.backward_full_s += gather_s;
    }
    costs.backward_input_s += costs.recompute_s;
    costs.backward_full_s += costs.recompute_s;
    if (!any_full) costs.backward_full_s = 0;
    out.jitter.passes.push_back(JitterOf(sums[stage]));
    out.costs.stages.push_back(costs);
  }
  out.costs.held_until_weight = HeldUntilWeight(model, training, layout);
  const double updated = MostUpdatedParameters(model, training, layout,
                                               rank_of_stage, /*directions=*/1);
  // New weights want copies in fp8, predicted ones too.
  const double quantize_s = ProfileQuantizeSeconds(
      profile, model, training, layout, rank_of_stage, /*directions=*/1);
  // One that was not measured is warned of where a schedule predicts.
  if (const auto seconds = ProfilePredictionSeconds(profile, updated)) {
    out.costs.prediction_s = *seconds + quantize_s;
  }
  if (const auto seconds = ProfileOptimizerSeconds(profile, updated)) {
    out.costs.optimizer_s = *seconds + quantize_s;
    if (!SecondsOnLine(profile, /*prediction=*/false, updated)) {
      lookup.Warn(absl::StrCat(
          "profile ", options.name,
          ": no optimizer step was measured; it takes ", kStepBytes,
          " bytes a parameter at the measured bandwidth of the device"));
    }
  } else {
    lookup.Warn(absl::StrCat("profile ", options.name,
                             ": no optimizer step was measured; it takes no "
                             "time unless --optimizer-time says so"));
  }
  out.jitter.optimizer = OptimizerFactors(profile);
  out.type = lookup.type();
  out.times = lookup.times();
  out.sources = SourcesOf(out.times, sums, &out.error_unknown);
  if (out.costs.optimizer_s > 0) {
    if (const auto error = OptimizerError(profile, updated)) {
      out.sources.push_back(
          {.name = "optimizer", .error = *error, .optimizer = true});
    } else {
      out.error_unknown = "the optimizer step: no drift was measured";
    }
  }
  out.splits_backward = lookup.splits_backward();
  out.split_price = lookup.SplitPrice();
  out.warnings = lookup.warnings();
  return out;
}

// What the step behind an iteration takes by a profile: optimizer, prediction
// of weights, their copies in fp8.

std::optional<double> ProfileOptimizerSeconds(const Profile& profile,
                                              double parameters) {
  const std::optional<double> step_s =
      SecondsOnLine(profile, /*prediction=*/false, parameters);
  if (step_s || profile.device_memory_bytes_per_s <= 0) return step_s;
  return parameters * kStepBytes / profile.device_memory_bytes_per_s;
}

std::optional<double> ProfilePredictionSeconds(const Profile& profile,
                                               double parameters) {
  return SecondsOnLine(profile, /*prediction=*/true, parameters);
}

double ProfileQuantizeSeconds(const Profile& profile, const ModelSpec& model,
                              const TrainingSpec& training,
                              const StageLayout& layout,
                              const std::vector<int>& rank_of_stage,
                              int directions) {
  const absl::StatusOr<ProfileModel> shape = ProfileModelOf(model);
  std::vector<GridPoint> points;
  for (const KernelEntry& entry : profile.kernels) {
    if (entry.name != "quantize.weights" || entry.shape.size() != 1) continue;
    const auto size = static_cast<double>(entry.shape[0]);
    points.push_back({{size}, {size}, entry.time.median_s});
  }
  if (training.precision != Precision::kFp8 || points.empty() || !shape.ok()) {
    return 0;
  }
  const int last_rank =
      *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  std::vector<double> layers(last_rank + 1);
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    for (const StageBlock& block : layout.stages[stage]) {
      if (block.kind != BlockKind::kDenseLayer) continue;
      const double count = static_cast<double>(block.count) * block.part;
      layers[rank_of_stage[stage]] += count;
      if (directions == 2) layers[last_rank - rank_of_stage[stage]] += count;
    }
  }
  // All devices' weights of a layer.
  const double weights = PointOf(ProfilePart::kLayer, ProfilePass::kForward,
                                 *shape, 1, 1, training.tp)
                             .where.back();
  const double own = weights / training.tp;
  return *std::max_element(layers.begin(), layers.end()) *
         Interpolation(std::move(points)).At({own}, {own}).seconds;
}

const char* HowName(ProfiledTime::How how) {
  switch (how) {
    case ProfiledTime::How::kMeasured:
      return "measured";
    case ProfiledTime::How::kInterpolated:
      return "interpolated";
    case ProfiledTime::How::kExtrapolated:
      return "extrapolated";
    case ProfiledTime::How::kScaled:
      return "scaled";
  }
  return "";
}

std::string DescribeProfile(const Profile& profile) {
  std::vector<std::string> sources;
  for (const ProfileSource& source : profile.sources) {
    const std::string line = absl::StrCat(
        source.device.empty() ? "unknown device" : source.device,
        source.backend.empty() ? "" : absl::StrCat(", ", source.backend),
        source.date.empty() ? "" : absl::StrCat(", ", source.date));
    if (std::find(sources.begin(), sources.end(), line) == sources.end()) {
      sources.push_back(line);
    }
  }
  return absl::StrJoin(sources, "; ");
}

BackToBack BackToBackOf(const Profile& profile, const PassEntry& entry,
                        bool recompute) {
  const auto tokens = [](const auto& of) {
    return static_cast<double>(of.microbatch_size * of.sequence);
  };
  const SplitEntry* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const SplitEntry& split : profile.splits) {
    const int64_t ep =
        entry.part == ProfilePart::kExpertLayer ? entry.ep : int64_t{0};
    if (split.recompute != recompute || split.model != entry.model ||
        split.type != entry.type || split.ep != ep) {
      continue;
    }
    const double distance = std::abs(std::log(tokens(split) / tokens(entry))) +
                            (split.tp == entry.tp ? 0 : 1);
    if (distance >= least) continue;
    least = distance;
    nearest = &split;
  }
  BackToBack out;
  if (nearest == nullptr) return out;
  std::array<double, kNumProfilePasses> seconds = {};
  for (const PassEntry& pass : profile.passes) {
    if (!IsSplitOf(*nearest, pass)) continue;
    seconds[static_cast<int>(pass.pass)] = pass.time.median_s;
  }
  const auto of = [&](ProfilePass pass) {
    return seconds[static_cast<int>(pass)];
  };
  if (of(ProfilePass::kForward) <= 0) return out;
  double front_s = of(ProfilePass::kForward);
  if (recompute) {
    if (of(ProfilePass::kRecompute) <= 0) return out;
    front_s += of(ProfilePass::kRecompute);
  }
  const double input_s = of(ProfilePass::kBackwardInput);
  const double weight_s = of(ProfilePass::kBackwardWeight);
  if (input_s > 0 && weight_s > 0 && nearest->chain.median_s > 0) {
    out.split = nearest->chain.median_s / (front_s + input_s + weight_s);
  }
  const double full_s = of(ProfilePass::kBackwardFull);
  if (full_s > 0 && nearest->fused.median_s > 0) {
    out.fused = nearest->fused.median_s / (front_s + full_s);
  }
  return out;
}

}  // namespace pipewright
